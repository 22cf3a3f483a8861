"""Which block of one format is evicted next: segmented LRU, leaves first.

Blocks enter in probation; one that was hit twice is protected, and only leaves of probation go before
protected leaves. The protected part is bounded: what is over is put back in probation, the least recently
used first. A block that findable blocks come after goes only when no leaf is left: that happens where a
sequence holds the end of a chain whose beginning it holds a private copy of, and where the blocks that come
after have the other format.

A heap orders them: every change puts a new entry on it and leaves the old one behind, to be dropped when it
comes to the top, or all at once when half of the heap is old. So every call is O(log n).
"""

import heapq
from collections import OrderedDict
from collections.abc import Mapping

_Entry = tuple[int, int, int]
"""Rank, ticket, block id: the smallest goes first."""
_PROTECTED, _INNER = 1, 2
"""Bits of a rank."""


class Slru:
    """The evictable blocks of one format, by id."""

    def __init__(self) -> None:
        self.max_protected = 0
        self._entries: dict[int, _Entry] = {}
        self._protected: OrderedDict[int, None] = OrderedDict()
        self._heap: list[_Entry] = []
        self._last_ticket = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._entries

    @property
    def num_protected(self) -> int:
        return len(self._protected)

    def is_protected(self, block_id: int) -> bool:
        return block_id in self._protected

    def add(self, block_id: int, *, is_protected: bool, is_inner: bool) -> None:
        """The most recently used one from now on. `is_inner`: findable blocks come after it."""
        assert block_id not in self._entries, block_id
        self._put(block_id, is_protected * _PROTECTED + is_inner * _INNER)
        if is_protected:
            self._protected[block_id] = None
            self._demote()

    def remove(self, block_id: int) -> None:
        rank, _, _ = self._entries.pop(block_id)
        if rank & _PROTECTED:
            del self._protected[block_id]
        self._drop_old_entries()

    def set_inner(self, block_id: int, is_inner: bool) -> None:
        """Its place in time stays; unknown ones are nobody's to evict and stay so."""
        entry = self._entries.get(block_id)
        if entry is not None and bool(entry[0] & _INNER) != is_inner:
            rank, ticket, _ = entry
            self._put(block_id, (rank & _PROTECTED) + is_inner * _INNER, ticket)

    def set_max_protected(self, max_protected: int) -> None:
        self.max_protected = max_protected
        self._demote()

    def next(self) -> int | None:
        """Who is to be evicted; it stays until it is removed."""
        while self._heap:
            entry = self._heap[0]
            block_id = entry[2]
            if self._entries.get(block_id) is entry:
                return block_id
            heapq.heappop(self._heap)
        return None

    def clear(self) -> None:
        self._entries.clear()
        self._protected.clear()
        self._heap.clear()

    def _put(self, block_id: int, rank: int, ticket: int | None = None) -> None:
        if ticket is None:
            ticket = self._last_ticket = self._last_ticket + 1
        entry = self._entries[block_id] = (rank, ticket, block_id)
        heapq.heappush(self._heap, entry)
        self._drop_old_entries()

    def _demote(self) -> None:
        while len(self._protected) > self.max_protected:
            block_id, _ = self._protected.popitem(last=False)
            # The most recently used of probation: it has another round to be hit in.
            self._put(block_id, self._entries[block_id][0] - _PROTECTED)

    def _drop_old_entries(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def check_integrity(self, is_inner: Mapping[int, bool]) -> None:
        """Assert that just these blocks can be evicted, each in its rank, and that the bounds hold."""
        ranks = {block_id: rank for block_id, (rank, _, _) in self._entries.items()}
        assert {i: bool(rank & _INNER) for i, rank in ranks.items()} == is_inner, "leaves are known wrong"
        assert len(self._protected) <= self.max_protected, "too much is protected"
        assert set(self._protected) == {i for i, rank in ranks.items() if rank & _PROTECTED}
        assert set(map(id, self._entries.values())) <= set(map(id, self._heap)), "one is never evicted"
        assert len(self._heap) <= 2 * len(self._entries) + 64, "old entries pile up"
