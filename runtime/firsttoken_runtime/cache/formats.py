"""The two formats a block of the KV cache can have, and counts of blocks of each.

Ids of blocks are global: those of FULL blocks come first, then those of QUANTIZED ones, with the same
tokens per block. So one slot number (id x block size + offset) says both where and how a token is stored.
"""

from enum import IntEnum
from typing import NamedTuple


class Format(IntEnum):
    """How the keys and values of a block are stored. The numbers are part of keys and of files."""

    FULL = 0
    """All layers in the compute dtype."""
    QUANTIZED = 1
    """int8 or fp8 with a scale per token and KV head; the last layers may stay in the compute dtype."""


FORMATS = tuple(Format)
"""To go through on the way of every request: an enum takes longer."""


class Counts(NamedTuple):
    """So many blocks of each format; `counts[Format.FULL]` is the same as `counts.full`."""

    full: int = 0
    quantized: int = 0

    @classmethod
    def of(cls, fmt: Format, num_blocks: int) -> "Counts":
        return cls(num_blocks, 0) if fmt is Format.FULL else cls(0, num_blocks)

    @property
    def total(self) -> int:
        return self.full + self.quantized

    def fits(self, room: "Counts") -> bool:
        """True if `room` has at least as many of each."""
        return self.full <= room.full and self.quantized <= room.quantized

    # Sums of counts, not joined tuples: what a tuple's own + means is never wanted here.
    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        return Counts(self.full + other.full, self.quantized + other.quantized)

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(self.full - other.full, self.quantized - other.quantized)


NO_BLOCKS = Counts()
