"""The sequences that wait, in the order of their rank, and who of them has waited longest.

A rank does not change while a sequence waits (see `order`), so nothing is ever sorted again: abort,
admission and arrival each find their place by bisection.
"""

import bisect
from collections import Counter
from collections.abc import Iterator

from firsttoken_runtime.scheduler.sequence import Rank, Sequence


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank


def _since(sequence: Sequence) -> tuple[float, int]:
    return (sequence.waiting_since_s, sequence.sequence_id)


class WaitingQueue:
    """Sorted by rank."""

    def __init__(self) -> None:
        self._by_rank: list[Sequence] = []
        self._by_wait: list[Sequence] = []
        self.count_by_class: Counter[str] = Counter()
        self.uncomputed_by_class: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_rank)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_rank)

    def push(self, sequence: Sequence) -> None:
        bisect.insort(self._by_rank, sequence, key=_rank)
        bisect.insort(self._by_wait, sequence, key=_since)
        self._count(sequence, 1)

    def remove(self, sequence: Sequence) -> None:
        index = bisect.bisect_left(self._by_rank, sequence.rank, key=_rank)
        assert self._by_rank[index] is sequence, sequence
        del self._by_rank[index]
        del self._by_wait[bisect.bisect_left(self._by_wait, _since(sequence), key=_since)]
        self._count(sequence, -1)

    def first(self, count: int) -> list[Sequence]:
        """At most `count` of them, in order."""
        return self._by_rank[:count]

    def longest_waiting(self) -> Sequence | None:
        return self._by_wait[0] if self._by_wait else None

    def _count(self, sequence: Sequence, sign: int) -> None:
        name = sequence.class_in_force.name
        self.count_by_class[name] += sign
        self.uncomputed_by_class[name] += sign * sequence.num_uncomputed_tokens
