"""The sequences that wait, in the order of their rank, and who of them has waited longest.

A rank does not change while a sequence waits (see `order`), so nothing is ever sorted again: abort,
admission and arrival each find their place by bisection. Those that wait for a prefix are parked: they
count, but are not in line.
"""

import bisect
from collections import Counter
from collections.abc import Iterator, KeysView

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
        self._parked: dict[int, Sequence] = {}
        self.count_by_class: Counter[str] = Counter()
        self.backlog_by_class: Counter[str] = Counter()
        """Tokens that are still to be computed, as far as was known when they were queued."""

    def __len__(self) -> int:
        return len(self._by_wait)

    def __iter__(self) -> Iterator[Sequence]:
        """The longest waiting first."""
        return iter(self._by_wait)

    @property
    def num_in_line(self) -> int:
        return len(self._by_rank)

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    @property
    def parked_ids(self) -> KeysView[int]:
        return self._parked.keys()

    def push(self, sequence: Sequence) -> None:
        bisect.insort(self._by_rank, sequence, key=_rank)
        bisect.insort(self._by_wait, sequence, key=_since)
        self._count(sequence, 1)

    def remove(self, sequence: Sequence) -> None:
        if self._parked.pop(sequence.sequence_id, None) is None:
            self._leave_line(sequence)
        del self._by_wait[bisect.bisect_left(self._by_wait, _since(sequence), key=_since)]
        self._count(sequence, -1)

    def park(self, sequence: Sequence) -> None:
        """It waits out of line."""
        self._leave_line(sequence)
        self._parked[sequence.sequence_id] = sequence

    def unpark(self, sequence: Sequence) -> None:
        """It is in line again."""
        del self._parked[sequence.sequence_id]
        bisect.insort(self._by_rank, sequence, key=_rank)

    def is_in_line(self, sequence: Sequence) -> bool:
        index = bisect.bisect_left(self._by_rank, sequence.rank, key=_rank)
        return index < len(self._by_rank) and self._by_rank[index] is sequence

    def first(self, count: int) -> list[Sequence]:
        """At most `count` of those in line, in order."""
        return self._by_rank[:count]

    def longest_waiting(self) -> Sequence | None:
        """Parked or not."""
        return self._by_wait[0] if self._by_wait else None

    def _leave_line(self, sequence: Sequence) -> None:
        index = bisect.bisect_left(self._by_rank, sequence.rank, key=_rank)
        assert self._by_rank[index] is sequence, sequence
        del self._by_rank[index]

    def _count(self, sequence: Sequence, sign: int) -> None:
        name = sequence.class_in_force.name
        self.count_by_class[name] += sign
        self.backlog_by_class[name] += sign * sequence.backlog_tokens
