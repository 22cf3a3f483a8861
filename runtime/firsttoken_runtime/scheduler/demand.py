"""Which part of the blocks has to be FULL: what the memory is split by when it is cut anew.

Counted from sequences that ended. Where prefixes are cached, what they found is not counted: a declared
prefix that everybody has is stored once. Where nothing is cached, each has its own. So both are counted, and
a switch is decided by what will be.
"""

_KEEP = 0.99
"""Weight of the past after one more sequence."""


class _Share:
    """Decaying sums of blocks."""

    def __init__(self) -> None:
        self._full = 0.0
        self._all = 0.0

    def note(self, full_blocks: int, num_blocks: int) -> None:
        self._full = self._full * _KEEP + full_blocks
        self._all = self._all * _KEEP + num_blocks

    @property
    def value(self) -> float | None:
        return self._full / self._all if self._all else None


class FormatDemand:
    """Of the sequences of an engine."""

    def __init__(self) -> None:
        self._asked = _Share()
        self._stored = _Share()
        """While prefixes were cached."""

    def note(self, *, declared_blocks: int, found_blocks: int, num_blocks: int, is_caching: bool) -> None:
        """A sequence of `num_blocks` ended, whose first ones were declared to be shared, or found."""
        self._asked.note(declared_blocks, num_blocks)
        if is_caching:
            self._stored.note(max(declared_blocks - found_blocks, 0), max(num_blocks - found_blocks, 0))

    def full_share(self, *, is_caching: bool) -> float:
        """0..1, where prefixes are cached or not; 0 while nothing is known of such times."""
        return (self._stored if is_caching else self._asked).value or 0.0
