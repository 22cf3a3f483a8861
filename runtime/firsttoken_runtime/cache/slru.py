"""Which block of one format is evicted next: segmented LRU, leaves first.

Blocks enter in probation; one that was hit twice is protected, and only leaves of probation go before
protected leaves. The protected part is bounded: what is over is put back in probation, the least recently
used first. A block that findable blocks come after goes only when no leaf is left: that happens where a
sequence holds the end of a chain whose beginning it holds a private copy of.

A heap orders them: every change puts a new entry on it and leaves the old one behind, to be dropped when it
comes to the top, or all at once when half of the heap is old. So every call is O(log n).
"""

import heapq
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Place:
    """Of one block. A smaller `ticket` goes earlier within its rank."""

    ticket: int
    is_protected: bool
    is_inner: bool

    @property
    def entry(self) -> tuple[int, int]:
        return 2 * self.is_inner + self.is_protected, self.ticket


class Slru:
    """The evictable blocks of one format, by id."""

    def __init__(self) -> None:
        self.max_protected = 0
        self._places: dict[int, _Place] = {}
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._heap: list[tuple[int, int, int]] = []
        self._next_ticket = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._places

    @property
    def num_protected(self) -> int:
        return len(self._protected)

    def add(self, block_id: int, *, is_protected: bool, is_inner: bool) -> None:
        """The most recently used one from now on. `is_inner`: findable blocks come after it."""
        assert block_id not in self._places, block_id
        self._put(block_id, _Place(self._ticket(), is_protected, is_inner))
        if is_protected:
            self._protected[block_id] = None
            self._demote()

    def remove(self, block_id: int) -> None:
        place = self._places.pop(block_id)
        if place.is_protected:
            del self._protected[block_id]
        self._drop_old_entries()

    def set_inner(self, block_id: int, is_inner: bool) -> None:
        """Its place in time stays; unknown ones are nobody's to evict and stay so."""
        place = self._places.get(block_id)
        if place is not None and place.is_inner != is_inner:
            self._put(block_id, _Place(place.ticket, place.is_protected, is_inner))

    def set_max_protected(self, max_protected: int) -> None:
        self.max_protected = max_protected
        self._demote()

    def next(self) -> int | None:
        """Who is to be evicted; it stays until it is removed."""
        while self._heap:
            *entry, block_id = self._heap[0]
            place = self._places.get(block_id)
            if place is not None and place.entry == tuple(entry):
                return block_id
            heapq.heappop(self._heap)
        return None

    def is_protected(self, block_id: int) -> bool:
        return block_id in self._protected

    def _ticket(self) -> int:
        self._next_ticket += 1
        return self._next_ticket

    def _put(self, block_id: int, place: _Place) -> None:
        self._places[block_id] = place
        heapq.heappush(self._heap, (*place.entry, block_id))
        self._drop_old_entries()

    def _demote(self) -> None:
        while len(self._protected) > self.max_protected:
            block_id, _ = self._protected.popitem(last=False)
            # The most recently used of probation: it has another round to be hit in.
            self._put(block_id, _Place(self._ticket(), False, self._places[block_id].is_inner))

    def _drop_old_entries(self) -> None:
        if len(self._heap) > 2 * len(self._places) + 64:
            self._heap = [(*place.entry, block_id) for block_id, place in self._places.items()]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        self._places.clear()
        self._protected.clear()
        self._heap.clear()

    def check_integrity(self, is_inner: Mapping[int, bool]) -> None:
        """Assert that just these blocks can be evicted, each in its rank, and that the bounds hold."""
        assert {i: place.is_inner for i, place in self._places.items()} == is_inner, "leaves are known wrong"
        assert len(self._protected) <= self.max_protected, "too much is protected"
        assert set(self._protected) == {i for i, place in self._places.items() if place.is_protected}
        assert {(*place.entry, i) for i, place in self._places.items()} <= set(self._heap), (
            "one is never evicted"
        )
        assert len(self._heap) <= 2 * len(self._places) + 64, "old entries pile up"
