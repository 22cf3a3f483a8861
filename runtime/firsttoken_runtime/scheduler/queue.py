"""The sequences that wait, in the order they came. Abort and order both in O(log n)."""

import bisect
from collections.abc import Iterator

from firsttoken_runtime.scheduler.sequence import Sequence


class WaitingQueue:
    """Sorted by arrival; a preempted sequence returns to its old place."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def push(self, sequence: Sequence) -> None:
        bisect.insort(self._sequences, sequence, key=lambda waiting: waiting.order)

    def first(self) -> Sequence | None:
        return self._sequences[0] if self._sequences else None

    def remove(self, sequence: Sequence) -> None:
        index = bisect.bisect_left(self._sequences, sequence.order, key=lambda waiting: waiting.order)
        assert self._sequences[index] is sequence, sequence
        del self._sequences[index]
