"""Which part of the blocks has to be FULL: what the memory is split by when it is cut anew.

Counted from sequences that ended. What they found in the cache is not counted: a declared prefix that
everybody has is stored once.
"""

_KEEP = 0.99
"""Weight of the past after one more sequence."""


class FormatDemand:
    """Decaying sums of blocks."""

    def __init__(self) -> None:
        self._full = 0.0
        self._all = 0.0

    def note(self, *, declared_blocks: int, found_blocks: int, num_blocks: int) -> None:
        """A sequence of `num_blocks` ended, whose first ones were declared to be shared, or found."""
        self._full = self._full * _KEEP + max(declared_blocks - found_blocks, 0)
        self._all = self._all * _KEEP + max(num_blocks - found_blocks, 0)

    @property
    def full_share(self) -> float:
        """0..1; 0 while nothing is known."""
        return self._full / self._all if self._all else 0.0
