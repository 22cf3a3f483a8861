"""Which blocks the host tier holds, and which it takes. Pure bookkeeping; `host_store` has the bytes.

A block that the device pool evicts is copied out. When it was hit before, or a preempted sequence wants it
back, it is kept before others; what nobody asked for twice, as the last turn of a conversation, gets the
room that is left, and goes first (`host_order`).

A slot is locked from the moment a copy from or to it is scheduled until that copy has ended: while it is
locked nothing else is written there, so a block that is on its way back is never overwritten.

A copy stays here after it was loaded: the block needs no second copy when it is evicted again.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firsttoken_runtime.cache import host_frames, host_order

if TYPE_CHECKING:
    from firsttoken_runtime.cache.blocks import Evicted
    from firsttoken_runtime.cache.formats import Format


@dataclass(slots=True)
class Entry:
    """One block of the tier. Its key names tokens, all tokens before them, salt and lineage."""

    slot: int
    key: bytes
    parent_key: bytes
    token_ids: array[int]
    fmt: Format
    num_locks: int = 0
    was_asked_for: bool = False
    """Hit, wanted, or loaded."""
    is_on_disk: bool = False
    """Or on its way there."""


class HostIndex:
    """Key -> host slot."""

    def __init__(self, capacity_bytes: int, bytes_of: Mapping[Format, int]) -> None:
        """`bytes_of`: bytes of a block over all layers, by format. Fits no record: the tier stays empty."""
        self.capacity_bytes = capacity_bytes
        self.num_evictions = 0
        self.num_refused = 0
        """Blocks that were worth a copy and found no room: everything is locked, or a record is too large."""
        self.takes_unasked = True
        """False: copies cost too much to be made on the chance that somebody asks."""
        self._wanted: Counter[bytes] = Counter()
        self.reset(bytes_of)

    def reset(self, bytes_of: Mapping[Format, int]) -> None:
        """Forget everything, locks too, and cut the memory anew. No copy may be under way."""
        self.cut = host_frames.cut(self.capacity_bytes, bytes_of)
        self._frames = host_frames.Frames(self.cut)
        self._order = host_order.Order(self.capacity_bytes)
        self._entries: dict[bytes, Entry] = {}
        self._by_slot: dict[int, Entry] = {}
        self._num_bytes = 0
        self._wanted.clear()

    @property
    def num_blocks(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def num_locked(self) -> int:
        return sum(entry.num_locks > 0 for entry in self._entries.values())

    def find(self, key: bytes, token_ids: Sequence[int], fmt: Format) -> int | None:
        """The slot of a block with exactly these tokens, None for a miss. Changes nothing."""
        entry = self._entries.get(key)
        if entry is None or entry.fmt != fmt or entry.token_ids != _packed(token_ids):
            return None
        return entry.slot

    def entry(self, slot: int) -> Entry:
        """What is, or is being, stored in that slot."""
        return self._by_slot[slot]

    def want(self, keys: Iterable[bytes]) -> None:
        """Take these blocks whatever their hits: a preempted sequence will ask for them. Counted."""
        for key in keys:
            self._wanted[key] += 1
            if key in self._entries:
                self._ask(self._entries[key])

    def unwant(self, keys: Iterable[bytes]) -> None:
        """One `want` less: the sequence runs again, or has ended. Keys that are not wanted are no mistake."""
        for key in keys:
            if self._wanted[key] <= 1:
                del self._wanted[key]
            else:
                self._wanted[key] -= 1

    def store(self, evicted: Evicted) -> int | None:
        """The slot to copy an evicted block to, locked until that copy has ended; None = no copy.

        None when it is here already, when a copy is not worth it, or when there is no room.
        """
        is_asked_for = evicted.hits >= 1 or evicted.key in self._wanted
        entry = self._entries.get(evicted.key)
        if entry is not None:
            if is_asked_for:
                self._ask(entry)
            else:
                self._order.use(evicted.key)
            return None
        if not is_asked_for and not self.takes_unasked:
            return None
        slot = self._make_room(evicted.fmt)
        if slot is None:
            self.num_refused += 1
            return None
        entry = self._add(slot, evicted.key, evicted.parent_key, evicted.token_ids, evicted.fmt)
        entry.was_asked_for = is_asked_for
        self._order.add(evicted.key, self.cut.bytes_of[evicted.fmt], is_protected=is_asked_for)
        return slot

    def restore(self, key: bytes, parent_key: bytes, token_ids: Sequence[int], fmt: Format) -> int | None:
        """The slot, locked, for a block of the folder; None when it is here or nothing is free.

        It displaces nobody and is the oldest: call it for what was used last first.
        """
        if key in self._entries or fmt not in self.cut.bytes_of:
            return None
        slot = self._frames.take(fmt)
        if slot is not None:
            entry = self._add(slot, key, parent_key, token_ids, fmt)
            entry.was_asked_for = entry.is_on_disk = True
            self._order.add_oldest(key, self.cut.bytes_of[fmt])
        return slot

    def lock(self, slots: Iterable[int]) -> None:
        """A copy from each of these slots is scheduled. Slots in the order of the text.

        The first block of a text becomes the one used last: without it the others cannot be found.
        """
        for slot in reversed(list(slots)):
            entry = self._by_slot[slot]
            entry.num_locks += 1
            self._ask(entry)

    def unlock(self, slots: Iterable[int]) -> None:
        """The copies have ended, or are not made after all."""
        for slot in slots:
            entry = self._by_slot[slot]
            assert entry.num_locks > 0, f"host slot {slot} unlocked twice"
            entry.num_locks -= 1

    def discard(self, slot: int) -> None:
        """The block did not arrive in its slot: forget it."""
        entry = self._by_slot[slot]
        assert entry.num_locks == 1, (slot, entry.num_locks)
        self._drop(entry)

    def check_integrity(self) -> None:
        """Assert that keys, slots and memory agree; when no copy is under way nothing may be locked."""
        assert len(self._entries) == len(self._by_slot), "a key or a slot is counted twice"
        ends: list[tuple[int, int]] = []
        for key, entry in self._entries.items():
            assert entry.key == key, entry
            assert self._by_slot[entry.slot] is entry, entry
            assert entry.slot in self._frames.neighbours(entry.slot), f"host slot {entry.slot} is free"
            start = self.cut.offset(entry.slot, entry.fmt)
            ends.append((start, start + self.cut.bytes_of[entry.fmt]))
        ends.sort()
        for (_, end), (start, _) in itertools.pairwise(ends):
            assert end <= start, "two records overlap"
        self._order.check_integrity({e.key: self.cut.bytes_of[e.fmt] for e in self._entries.values()})
        assert self._num_bytes == sum(end - start for start, end in ends), "bytes are miscounted"
        assert not ends or ends[-1][1] <= self.capacity_bytes, "more than the capacity"

    def _ask(self, entry: Entry) -> None:
        entry.was_asked_for = True
        self._order.protect(entry.key)

    def _add(self, slot: int, key: bytes, parent_key: bytes, token_ids: Sequence[int], fmt: Format) -> Entry:
        entry = Entry(slot, key, parent_key, _packed(token_ids), fmt, num_locks=1)
        self._entries[key] = entry
        self._by_slot[slot] = entry
        self._num_bytes += self.cut.bytes_of[fmt]
        return entry

    def _make_room(self, fmt: Format) -> int | None:
        """A slot for that format, at the price of the first that can go.

        Where that has the other format its whole frame goes, with what would have stayed longer.
        """
        slot = self._frames.take(fmt)
        if slot is not None:
            return slot
        for key in self._order:
            first = self._entries[key]
            if first.num_locks:
                continue
            victims = [first]
            if first.fmt != fmt:
                victims = [self._by_slot[other] for other in self._frames.neighbours(first.slot)]
                if any(victim.num_locks for victim in victims):
                    continue
            for victim in victims:
                self._drop(victim)
            self.num_evictions += len(victims)
            return self._frames.take(fmt)
        return None

    def _drop(self, entry: Entry) -> None:
        self._order.remove(entry.key)
        del self._entries[entry.key]
        del self._by_slot[entry.slot]
        self._num_bytes -= self.cut.bytes_of[entry.fmt]
        self._frames.give_back(entry.slot, entry.fmt)


def _packed(token_ids: Sequence[int]) -> array[int]:
    return array("I", token_ids)
