"""Consistent hashing: which replica a key belongs to, alike in every sidecar, whoever asks first. Pure.

Each replica owns many short arcs of a circle. When one leaves, its arcs alone change hands; when one comes,
it takes its share from all. The hash is of bytes and not Python's, so that all processes agree.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Iterable

ARCS_PER_MEMBER = 64
"""Shares of two members then differ by an eighth or so; more arcs cost memory and little else."""
_POSITION_BYTES = 8


class Ring:
    """An unchanging circle of members."""

    def __init__(self, members: Iterable[str]) -> None:
        self.members = frozenset(members)
        arcs = sorted(
            (_position(f"{member}#{index}".encode()), member)
            for member in self.members
            for index in range(ARCS_PER_MEMBER)
        )
        self._positions = [position for position, _ in arcs]
        self._owners = [member for _, member in arcs]

    def home(self, key: bytes, eligible: Collection[str]) -> str | None:
        """The first eligible member from the key's position on, as if the others were not there.

        None when no member is eligible.
        """
        count = len(self._owners)
        start = bisect_right(self._positions, _position(key))
        for offset in range(count):
            member = self._owners[(start + offset) % count]
            if member in eligible:
                return member
        return None


def _position(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=_POSITION_BYTES).digest(), "big")
