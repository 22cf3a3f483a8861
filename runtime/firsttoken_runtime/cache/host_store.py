"""The bytes of the host tier: one piece of host memory, cut into records by `host_frames`.

A record is a block over all layers, as raw bytes: layer after layer, and in each the parts that the layer
stores of it. It says nothing of what the numbers are, so copying to and fro cannot change them. On a
GPU the memory is pinned, in place: torch's own pinned allocator would round it up to a power of two.
"""

import logging
from typing import Any

import torch

from firsttoken_runtime.cache import host_frames
from firsttoken_runtime.cache.formats import Format

_log = logging.getLogger(__name__)


class TooMuch(Exception):  # noqa: N818
    """The host has no such memory; the message names the setting."""


class HostStore:
    """Records of one or two sizes in one buffer."""

    def __init__(self, capacity_bytes: int, cut: host_frames.Cut, *, pinned: bool) -> None:
        """Raises TooMuch. On a CPU pages are taken only when they are first written."""
        try:
            self._buffer = torch.empty(capacity_bytes, dtype=torch.uint8)
        except (RuntimeError, MemoryError) as error:
            raise TooMuch(
                f"--host-memory asks for {capacity_bytes} bytes, which this machine does not have; lower it"
            ) from error
        self._is_pinned = pinned and _pin(self._buffer)
        self.cut = cut

    def record(self, slot: int, fmt: Format) -> torch.Tensor:
        """-> uint8 [bytes of a block], a view."""
        start = self.cut.offset(slot, fmt)
        return self._buffer[start : start + self.cut.bytes_of[fmt]]

    def read(self, slot: int, fmt: Format) -> bytes:
        return self.record(slot, fmt).numpy().tobytes()

    def write(self, slot: int, fmt: Format, payload: bytes) -> None:
        record = self.record(slot, fmt)
        assert len(payload) == len(record), (len(payload), len(record))
        record.numpy()[:] = memoryview(payload)

    def close(self) -> None:
        """Give the memory back. Nothing may use a record any more."""
        if self._is_pinned:
            _cuda().cudaHostUnregister(self._buffer.data_ptr())
        self._is_pinned = False
        self._buffer = torch.empty(0, dtype=torch.uint8)


def _pin(buffer: torch.Tensor) -> bool:
    """Without it copies work too, but wait for each other."""
    code = int(_cuda().cudaHostRegister(buffer.data_ptr(), buffer.numel(), 0))
    if code != 0:
        _log.warning("host tier: the memory could not be pinned (CUDA error %d); copies are slower", code)
    return code == 0


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
