"""Moves blocks between one device pool and the host tier, in the order it is told.

Both ends of a copy stay locked until it has ended: the host slot in the index, the device block because the
computation waits. On a GPU the copies run beside it, and a layer waits only for its own (`before_layer`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol

import torch

from firsttoken_runtime.cache import host, host_store
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.engine import copy_lane
from firsttoken_runtime.engine.block_bytes import BlockBytes

STAGING_BYTES = 16 * 1024**2


class Copy(Protocol):
    """One block and one host slot: `step.Save`, `step.Load`."""

    @property
    def block_id(self) -> int: ...
    @property
    def host_slot(self) -> int: ...


@dataclass(frozen=True)
class Pair:
    """A copy that no scheduler asked for."""

    block_id: int
    host_slot: int


@dataclass(frozen=True)
class _Move:
    """Blocks of one format that are copied together."""

    fmt: Format
    numbers: torch.Tensor
    """int64 [N], of the blocks among those of their format."""
    slots: Sequence[int]


@dataclass(frozen=True)
class _UnderWay:
    end: copy_lane.Mark
    slots: Sequence[int]


class Mover:
    """One pool, one host store. For the loop's thread."""

    def __init__(
        self,
        index: host.HostIndex,
        store: host_store.HostStore,
        blocks: BlockBytes,
        *,
        on_ended: Callable[[Sequence[int]], None] = lambda slots: None,
        by_layer: bool = False,
        lane: copy_lane.Lane | None = None,
    ) -> None:
        """on_ended: gets slots whose copies have ended, still locked. by_layer: the forward pass calls
        `before_layer` for each layer; else the computation waits for all of a step's copies."""
        self.saves_total = 0
        self.loads_total = 0
        self._index = index
        self._store = store
        self._on_ended = on_ended
        self._by_layer = by_layer
        self._lane = lane or copy_lane.lane_for(blocks.device)
        self._under_way: deque[_UnderWay] = deque()
        self._arrivals: deque[tuple[range, copy_lane.Mark]] = deque()
        """Layers of this step whose bytes may still be on their way."""
        self.use(blocks)

    def use(self, blocks: BlockBytes) -> None:
        """From now on these. No copy may be under way."""
        assert not self._under_way, "finish() first"
        assert blocks.bytes_of == self._index.cut.bytes_of, (blocks.bytes_of, self._index.cut.bytes_of)
        self.blocks = blocks
        self._store.cut = self._index.cut
        self._arrivals.clear()
        # Allocated once: a copy asks for no more memory than some bytes of one layer.
        self._staging = {
            fmt: torch.empty((max(STAGING_BYTES // size, 1), size), dtype=torch.uint8, device=blocks.device)
            for fmt, size in blocks.bytes_of.items()
        }

    def run(self, saves: Sequence[Copy], loads: Sequence[Copy]) -> None:
        """All saves, in their order, then all loads. Their slots are locked, and are unlocked when it ended.

        If it raises, none of the saves is in the tier, and the blocks of the loads hold nothing.
        """
        if not saves and not loads:
            return
        saved, loaded = [copy.host_slot for copy in saves], [copy.host_slot for copy in loads]
        try:
            self._issue(saves, loads)
            end = self._lane.mark()
        except BaseException:
            self._lane.finish()
            self._index.unlock(loaded)
            for slot in saved:
                self._index.discard(slot)
            raise
        self._under_way.append(_UnderWay(end, saved + loaded))
        self.saves_total += len(saved)
        self.loads_total += len(loaded)
        if not self._by_layer:
            self.before_layer(self.blocks.num_layers - 1)
        self.release_ended()

    def before_layer(self, layer: int) -> None:
        """What is computed from here on finds the blocks of this step in all layers up to this one."""
        while self._arrivals and self._arrivals[0][0].start <= layer:
            _, mark = self._arrivals.popleft()
            self._lane.hold_computation(mark)

    def release_ended(self) -> None:
        """Unlock what has arrived."""
        while self._under_way and self._under_way[0].end.query():
            ended = self._under_way.popleft()
            self._on_ended(ended.slots)
            self._index.unlock(ended.slots)

    def finish(self) -> None:
        """Return when nothing is under way."""
        self._lane.finish()
        self.release_ended()

    def rehearse(self, num_blocks: int, *, saves: bool) -> None:
        """Copy some of the first blocks and slots one way, and wait: to be timed, while the tier is empty. A
        load after a save gives the blocks what they held."""
        assert self._index.num_blocks == 0, "records would be overwritten"
        pairs = self._rehearsed()[:num_blocks]
        self._issue(pairs if saves else [], [] if saves else pairs)
        self._lane.finish()

    @property
    def most_rehearsed(self) -> int:
        """0 = the tier has no room for a block."""
        return len(self._rehearsed())

    def _rehearsed(self) -> list[Pair]:
        """The first blocks, of the format that most have."""
        fmt = max(self.blocks.bytes_of)
        first = self.blocks.num_full_blocks if fmt is Format.QUANTIZED else 0
        slots = islice(self._index.cut.slots(fmt), min(self.blocks.num_blocks(fmt), 64))
        return [Pair(first + number, slot) for number, slot in enumerate(slots)]

    def _issue(self, saves: Sequence[Copy], loads: Sequence[Copy]) -> None:
        with self._lane.open():
            for move in self._moves(saves):
                self._save(move)
            read = self._lane.mark()
            moves = self._moves(loads)
            for layers in self.blocks.groups(self._lane.group_bytes) if moves else ():
                for move in moves:
                    self._load(move, layers)
                self._arrivals.append((layers, self._lane.mark()))
        # Nothing may be written over a block that is still being read.
        self._lane.hold_computation(read)

    def _moves(self, copies: Sequence[Copy]) -> list[_Move]:
        """Tiles that fit into the staging tensor, in order, one format at a time."""
        places = [(*self.blocks.locate(copy.block_id), copy.host_slot) for copy in copies]
        moves = []
        for fmt, group in groupby(places, key=lambda place: place[0]):
            same = list(group)
            rows = len(self._staging[fmt])
            for tile in (same[start : start + rows] for start in range(0, len(same), rows)):
                numbers = torch.tensor([number for _, number, _ in tile], device=self.blocks.device)
                moves.append(_Move(fmt, numbers, [slot for *_, slot in tile]))
        return moves

    def _save(self, move: _Move) -> None:
        staging = self._staging[move.fmt][: len(move.slots)]
        self.blocks.gather(move.fmt, move.numbers, staging)
        for row, slot in zip(staging, move.slots, strict=True):
            self._store.record(slot, move.fmt).copy_(row, non_blocking=True)

    def _load(self, move: _Move, layers: range) -> None:
        staging = self._staging[move.fmt][: len(move.slots)]
        span = self.blocks.span(move.fmt, layers)
        for row, slot in zip(staging, move.slots, strict=True):
            row[span].copy_(self._store.record(slot, move.fmt)[span], non_blocking=True)
        self.blocks.scatter(move.fmt, move.numbers, staging, layers)
