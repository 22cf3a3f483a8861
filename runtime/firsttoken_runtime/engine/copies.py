"""What a step saves to the host tier and loads from it, executed before its forward pass.

The scheduler decides with the index; this copies, hands what was saved to the disk, and takes in what an
earlier process left there. Saves come first: the blocks they read are evicted, and the step may write or
load into them. Nothing here can change an answer: what goes wrong is a problem that is counted, and a miss.
"""

import time
from collections.abc import Iterable, Sequence

from firsttoken_runtime.cache import disk_store, host, host_problems, host_store
from firsttoken_runtime.cache.blocks import Evicted
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.engine import block_mover, copy_lane
from firsttoken_runtime.engine.block_bytes import BlockBytes

HOST_FULL = "host_full"
RESTORE_BUDGET_S = 0.002
"""Of a turn of the loop, for taking in what the disk had."""


class Copies:
    """Between one device pool and the host tier. For the loop's thread; only `close` waits for a disk."""

    def __init__(
        self,
        index: host.HostIndex,
        store: host_store.HostStore,
        blocks: BlockBytes,
        lineage: bytes,
        problems: host_problems.Problems,
        *,
        disk: disk_store.DiskStore | None = None,
        by_layer: bool = False,
        lane: copy_lane.Lane | None = None,
    ) -> None:
        """by_layer: the forward pass calls `before_layer` for each layer; else it waits for all copies."""
        self.index = index
        self._store = store
        self._lineage = lineage
        self._problems = problems
        self._disk = disk
        self._mover = block_mover.Mover(
            index, store, blocks, on_ended=self._write_to_disk, by_layer=by_layer, lane=lane
        )
        self._refused_seen = 0
        self._disk_deadline = 0.0
        """Until then a save may wait for the disk."""
        self._start_restoring()

    @property
    def saves_total(self) -> int:
        """Blocks."""
        return self._mover.saves_total

    @property
    def loads_total(self) -> int:
        """Blocks."""
        return self._mover.loads_total

    @property
    def is_restoring(self) -> bool:
        """The disk has more, so the loop should not sleep for long."""
        return self._disk is not None and self._disk.is_restoring

    def replace(self, blocks: BlockBytes, lineage: bytes) -> None:
        """A switch: other tensors. The blocks stay if neither their shape nor their meaning changed."""
        self._mover.finish()
        is_same = lineage == self._lineage and blocks.bytes_of == self.index.cut.bytes_of
        if not is_same:
            self.index.reset(blocks.bytes_of)
        self._mover.use(blocks)
        self._lineage = lineage
        if not is_same:
            self._start_restoring()

    def run(self, saves: Sequence[block_mover.Copy], loads: Sequence[block_mover.Copy]) -> None:
        """All saves, in their order, then all loads. Their slots are locked, and are unlocked when it ended.

        If it raises, none of the saves is in the tier, and the blocks of the loads hold nothing.
        """
        self._mover.run(saves, loads)

    def before_layer(self, layer: int) -> None:
        """What is computed from here on finds the blocks of this step in all layers up to this one."""
        self._mover.before_layer(layer)

    def settle(self, restore_budget_s: float = RESTORE_BUDGET_S) -> None:
        """Once a turn: unlock what has arrived, and take in what the disk had, for at most about so long."""
        self._mover.release_ended()
        refused = self.index.num_refused - self._refused_seen
        if refused:
            self._refused_seen = self.index.num_refused
            self._problems.note(HOST_FULL, "no room for a block that was worth it", refused)
        if self._disk is None:
            return
        deadline = time.monotonic() + restore_budget_s
        while time.monotonic() < deadline and (record := self._disk.poll_restored()) is not None:
            self._take_in(record)

    def keep(self, blocks: Iterable[Evicted], disk_timeout_s: float = 5.0) -> None:
        """Save what was asked for in the device pool before it goes, and to the disk what is not there yet.

        blocks: children before parents. Where there is no room for all, it is the children that are left
        out: they could not be found without their parents. The disk may take about so long.
        """
        asked_for = [block for block in blocks if block.hits >= 1]
        for block in asked_for:
            if (slot := self.index.find(block.key, block.token_ids, block.fmt)) is not None:
                # Its file may have made way meanwhile; one that is still there is the one used last then.
                self.index.entry(slot).is_on_disk = False
        saves = [
            block_mover.Pair(block.block_id, slot)
            for block in reversed(asked_for)
            if (slot := self.index.store(block)) is not None
        ]
        self._disk_deadline = time.monotonic() + disk_timeout_s
        self.run(saves[::-1], [])
        self._mover.finish()
        found = [self.index.find(block.key, block.token_ids, block.fmt) for block in asked_for]
        self._write_to_disk([slot for slot in found if slot is not None])
        self._disk_deadline = 0.0

    def rehearse_load(self, num_blocks: int) -> None:
        """Load so many blocks, to be timed; before `settle` and after `rehearse_save`: each gets
        what it has."""
        self._mover.rehearse(num_blocks, saves=False)

    def rehearse_save(self, num_blocks: int) -> None:
        """The other way; before `settle`."""
        self._mover.rehearse(num_blocks, saves=True)

    @property
    def most_rehearsed(self) -> int:
        """0 = the tier has no room for a block."""
        return self._mover.most_rehearsed

    def close(self, timeout_s: float = 5.0) -> None:
        """Finish the copies, wait at most so long for the disk, give the memory back."""
        self._mover.finish()
        if self._disk is not None:
            self._disk.close(timeout_s)
        self._store.close()

    def _start_restoring(self) -> None:
        if self._disk is not None:
            self._disk.start_restoring(self._lineage, self.index.cut.bytes_of)

    def _write_to_disk(self, slots: Sequence[int]) -> None:
        """What was asked for, once."""
        if self._disk is None:
            return
        for slot in slots:
            entry = self.index.entry(slot)
            if not entry.was_asked_for or entry.is_on_disk:
                continue
            entry.is_on_disk = True
            payload = self._store.read(slot, entry.fmt)
            self._disk.write(
                Record(self._lineage, entry.key, entry.parent_key, entry.token_ids, entry.fmt, payload),
                max(self._disk_deadline - time.monotonic(), 0.0),
            )

    def _take_in(self, record: Record) -> None:
        if self.index.find(record.key, record.token_ids, record.fmt) is not None:
            return
        slot = self.index.restore(record.key, record.parent_key, record.token_ids, record.fmt)
        if slot is None:
            assert self._disk is not None
            self._disk.stop_restoring()
            return
        self._store.write(slot, record.fmt, record.payload)
        self.index.unlock([slot])
