"""The sequences that run: those that decode in order of class and arrival, and those whose known
tokens are not computed yet.

Kept sorted because every step visits all that decode, and because the reverse order is that of the
victims.
"""

import bisect
from collections.abc import Iterator, KeysView

from firsttoken_runtime.scheduler.sequence import Place, Sequence


def _place(sequence: Sequence) -> Place:
    return sequence.place


class Running:
    """Every running sequence is in exactly one of `decoding` and `prefilling`."""

    def __init__(self) -> None:
        self._by_id: dict[int, Sequence] = {}
        self._prefilling: dict[int, Sequence] = {}
        self.decoding: list[Sequence] = []
        """First come first, the most urgent class before all."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_id.values())

    def __contains__(self, sequence: Sequence) -> bool:
        return self._by_id.get(sequence.sequence_id) is sequence

    @property
    def ids(self) -> KeysView[int]:
        return self._by_id.keys()

    @property
    def prefilling(self) -> list[Sequence]:
        return list(self._prefilling.values())

    def add(self, sequence: Sequence) -> None:
        """It was admitted: its known tokens are to be computed."""
        self._by_id[sequence.sequence_id] = sequence
        self._prefilling[sequence.sequence_id] = sequence

    def is_prefilling(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._prefilling

    def start_decoding(self, sequence: Sequence) -> None:
        del self._prefilling[sequence.sequence_id]
        bisect.insort(self.decoding, sequence, key=_place)

    def remove(self, sequence: Sequence) -> None:
        del self._by_id[sequence.sequence_id]
        if self._prefilling.pop(sequence.sequence_id, None) is None:
            del self.decoding[self._index(sequence)]

    def move(self, sequence: Sequence, place: Place) -> None:
        """Its class changed."""
        if sequence.sequence_id in self._prefilling:
            sequence.place = place
            return
        del self.decoding[self._index(sequence)]
        sequence.place = place
        bisect.insort(self.decoding, sequence, key=_place)

    def last_first(self) -> list[Sequence]:
        """The lowest class first, in it the latest arrival: the order of victims."""
        return sorted(self._by_id.values(), key=_place, reverse=True)

    def _index(self, sequence: Sequence) -> int:
        index = bisect.bisect_left(self.decoding, sequence.place, key=_place)
        assert self.decoding[index] is sequence, sequence
        return index
