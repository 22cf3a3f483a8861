"""Where copies between device and host run: on a CPU at once, on a GPU on a stream beside the computation.

A lane gives marks: points in its work that others can wait for or ask about. What is issued in a lane
runs in order.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch


class Mark(Protocol):
    """A point in the work of a lane."""

    def query(self) -> bool:
        """True when everything before it has ended."""
        ...


class Lane(Protocol):
    """One line of copies."""

    group_bytes: int | None
    """Copy layers in groups of at least so many bytes of a block; None = whole blocks."""

    def open(self) -> AbstractContextManager[object]:
        """Copies issued inside run in the lane, after all that was computed so far."""
        ...

    def mark(self) -> Mark: ...

    def hold_computation(self, mark: Mark) -> None:
        """What is computed from now on starts after the mark. Not while the lane is open."""
        ...

    def finish(self) -> None:
        """Return when all of it has ended."""
        ...


class _Ended:
    def query(self) -> bool:
        return True


class PlainLane:
    """A CPU: a copy has ended when its call returns."""

    group_bytes: int | None = None

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> Mark:
        return _Ended()

    def hold_computation(self, mark: Mark) -> None:
        """Nothing runs beside it."""

    def finish(self) -> None:
        """All has ended."""


class CudaLane:
    """A stream of its own. The first layers of a block arrive while the later ones are still on their way."""

    group_bytes: int | None = 256 * 1024

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def open(self) -> AbstractContextManager[object]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def mark(self) -> Mark:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def hold_computation(self, mark: Mark) -> None:
        assert isinstance(mark, torch.cuda.Event)
        torch.cuda.current_stream(self._device).wait_event(mark)

    def finish(self) -> None:
        self._stream.synchronize()


def lane_for(device: torch.device) -> Lane:
    return CudaLane(device) if device.type == "cuda" else PlainLane()
