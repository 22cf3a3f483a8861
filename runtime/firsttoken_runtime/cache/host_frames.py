"""How the bytes of the host tier are cut into records of one or two sizes. Pure arithmetic and bookkeeping.

A record of a full block and one of a quantized block differ in size, so one row of equal slots would waste
almost half of the memory under int8. The memory is cut into equal frames instead, and each frame, while it
holds anything, into records of one format. An empty frame can take either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firsttoken_runtime.cache.formats import Format

MOST_FULL_RECORDS = 16
LEAST_FRAMES = 8
"""With fewer, giving one to the other format would take too large a part of the memory."""


@dataclass(frozen=True)
class Cut:
    """Where the record of each slot lies. A slot is a frame and a place in it: frame x `stride` + place."""

    bytes_of: Mapping[Format, int]
    frame_bytes: int
    num_frames: int

    @property
    def stride(self) -> int:
        return max(self.per_frame(fmt) for fmt in self.bytes_of)

    def per_frame(self, fmt: Format) -> int:
        """Records of one format in one frame."""
        return self.frame_bytes // self.bytes_of[fmt]

    def offset(self, slot: int, fmt: Format) -> int:
        """First byte of the record of that slot."""
        frame, place = divmod(slot, self.stride)
        assert frame < self.num_frames, (slot, self)
        assert place < self.per_frame(fmt), (slot, fmt, self)
        return frame * self.frame_bytes + place * self.bytes_of[fmt]

    def slots(self, fmt: Format) -> Iterator[int]:
        """All slots, if every frame were of that format."""
        for frame in range(self.num_frames):
            for place in range(self.per_frame(fmt)):
                yield frame * self.stride + place


def cut(capacity_bytes: int, bytes_of: Mapping[Format, int]) -> Cut:
    """The frame size that wastes least: a few of the largest records, as many as leave `LEAST_FRAMES`."""
    largest = max(bytes_of.values())
    assert min(bytes_of.values()) > 0, bytes_of

    def waste(frame_bytes: int) -> float:
        return max(frame_bytes % size for size in bytes_of.values()) / frame_bytes

    most = max(1, min(MOST_FULL_RECORDS, capacity_bytes // (largest * LEAST_FRAMES)))
    frame_bytes = min((largest * count for count in range(1, most + 1)), key=waste)
    return Cut(dict(bytes_of), frame_bytes, capacity_bytes // frame_bytes)


class Frames:
    """Which slots are taken."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._stride = cut.stride
        self._empty = list(range(cut.num_frames - 1, -1, -1))
        self._free: dict[Format, dict[int, None]] = {fmt: {} for fmt in cut.bytes_of}
        """Free slots of the frames in use; a dict, because a frame that becomes empty takes its out."""
        self._taken: dict[int, set[int]] = {}
        """Frame -> its taken slots."""

    def take(self, fmt: Format) -> int | None:
        """A free slot for a record of that format, None when there is none."""
        free = self._free[fmt]
        if not free:
            if not self._empty:
                return None
            frame = self._empty.pop()
            self._taken[frame] = set()
            for place in range(self._cut.per_frame(fmt) - 1, -1, -1):
                free[frame * self._stride + place] = None
        slot, _ = free.popitem()
        self._taken[slot // self._stride].add(slot)
        return slot

    def give_back(self, slot: int, fmt: Format) -> None:
        frame = slot // self._stride
        taken = self._taken[frame]
        taken.remove(slot)
        self._free[fmt][slot] = None
        if not taken:
            for place in range(self._cut.per_frame(fmt)):
                del self._free[fmt][frame * self._stride + place]
            del self._taken[frame]
            self._empty.append(frame)

    def neighbours(self, slot: int) -> frozenset[int]:
        """The taken slots of its frame, itself among them."""
        return frozenset(self._taken[slot // self._stride])
