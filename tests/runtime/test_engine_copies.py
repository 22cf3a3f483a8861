"""Copies between device blocks and the host tier: the bytes that arrive are those of the block, always."""

import os
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from firsttoken_runtime.cache import blocks as cache_blocks
from firsttoken_runtime.cache import disk_store, host, host_problems, host_store, keys
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import block_mover, copies, copy_lane
from firsttoken_runtime.engine.block_bytes import BlockBytes
from runtime.host_tier import BLOCK_SIZE, LINEAGE, block_bytes, contents, evicted, expected, fill

Pair = block_mover.Pair


def tier(
    blocks: BlockBytes,
    num_records: int,
    *,
    disk: disk_store.DiskStore | None = None,
    by_layer: bool = False,
    lane: copy_lane.Lane | None = None,
    problems: host_problems.Problems | None = None,
) -> copies.Copies:
    capacity = num_records * max(blocks.bytes_of.values())
    index = host.HostIndex(capacity, blocks.bytes_of)
    store = host_store.HostStore(capacity, index.cut, pinned=False)
    return copies.Copies(
        index,
        store,
        blocks,
        LINEAGE,
        problems or host_problems.Problems(),
        disk=disk,
        by_layer=by_layer,
        lane=lane,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("counts", [Counts(7, 0), Counts(5, 6)])
@pytest.mark.parametrize(("heads", "head_dim", "block_size"), [(1, 6, 4), (3, 10, 9), (2, 7, 1)])
def test_a_block_comes_back_bit_by_bit(
    counts: Counts, dtype: torch.dtype, heads: int, head_dim: int, block_size: int
) -> None:
    blocks = block_bytes(
        counts, num_kv_heads=heads, head_dim=head_dim, dtype=dtype, block_size_tokens=block_size
    )
    copying = tier(blocks, 40)
    made = [
        evicted(block_id, blocks.locate(block_id)[0], block_id=block_id) for block_id in range(sum(counts))
    ]
    saves = []
    for block in made:
        fill(blocks, block.block_id, block.key)
        slot = copying.index.store(block)
        assert slot is not None
        saves.append(Pair(block.block_id, slot))
    copying.run(saves, [])
    # Every block gets the contents of the next one of its format.
    loads = []
    for block in made:
        same = [other for other in made if other.fmt is block.fmt]
        target = same[(same.index(block) + 1) % len(same)]
        slot = copying.index.find(block.key, block.token_ids, block.fmt)
        assert slot is not None
        copying.index.lock([slot])
        loads.append((Pair(target.block_id, slot), block))
    copying.run([], [pair for pair, _ in loads])
    for pair, block in loads:
        size = blocks.bytes_of[block.fmt]
        assert contents(blocks, pair.block_id) == expected(block.key, size)
    assert copying.index.num_locked == 0
    assert (copying.saves_total, copying.loads_total) == (len(saves), len(loads))


def test_more_blocks_than_fit_into_the_staging_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = block_bytes(Counts(10, 10))
    monkeypatch.setattr(block_mover, "STAGING_BYTES", 3 * blocks.bytes_of[Format.FULL] + 1)
    copying = tier(blocks, 40)
    made = [evicted(block_id, blocks.locate(block_id)[0], block_id=block_id) for block_id in range(20)]
    random.Random(0).shuffle(made)
    for block in made:
        fill(blocks, block.block_id, block.key)
    copying.keep(made)
    for block in made:
        fill(blocks, block.block_id, b"something else")
    slots = [copying.index.find(block.key, block.token_ids, block.fmt) for block in made]
    copying.index.lock([slot for slot in slots if slot is not None])
    copying.run([], [Pair(b.block_id, s) for b, s in zip(made, slots, strict=True) if s is not None])
    for block in made:
        assert contents(blocks, block.block_id) == expected(block.key, blocks.bytes_of[block.fmt])


def test_saves_come_before_loads() -> None:
    """The evicted block is saved before the loaded one takes its place; a slot may be in both."""
    blocks = block_bytes(Counts(2, 0))
    copying = tier(blocks, 2)
    old, new = evicted(1, block_id=0), evicted(2, block_id=1)
    fill(blocks, 0, old.key)
    fill(blocks, 1, new.key)
    first, second = copying.index.store(old), copying.index.store(new)
    assert first is not None
    assert second is not None
    copying.index.lock([second])
    copying.run([Pair(0, first), Pair(1, second)], [Pair(0, second)])
    size = blocks.bytes_of[Format.FULL]
    assert contents(blocks, 0) == expected(new.key, size)
    copying.index.lock([first])
    copying.run([], [Pair(1, first)])
    assert contents(blocks, 1) == expected(old.key, size)


class SlowLane:
    """Copies whose end is seen late, as on a GPU; it notes what the computation waits for."""

    group_bytes: int | None = 1

    def __init__(self) -> None:
        self.is_open = False
        self.is_over = False
        self.waits = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        self.is_open = True
        yield
        self.is_open = False

    def mark(self) -> copy_lane.Mark:
        return self

    def query(self) -> bool:
        return self.is_over

    def hold_computation(self, mark: copy_lane.Mark) -> None:
        assert not self.is_open, "the lane would wait for itself"
        self.waits += 1

    def finish(self) -> None:
        self.is_over = True


def test_both_ends_stay_locked_until_the_copy_has_ended() -> None:
    blocks = block_bytes(Counts(3, 0))
    lane = SlowLane()
    copying = tier(blocks, 1, lane=lane)
    fill(blocks, 0, evicted(1).key)
    slot = copying.index.store(evicted(1))
    assert slot is not None
    copying.run([Pair(0, slot)], [])
    assert copying.index.store(evicted(2)) is None
    copying.settle()
    assert copying.index.num_locked == 1
    lane.is_over = True
    copying.settle()
    assert copying.index.num_locked == 0
    assert copying.index.store(evicted(2)) == slot


@pytest.mark.parametrize("by_layer", [False, True])
def test_a_layer_waits_for_its_own_copies_only(by_layer: bool) -> None:
    blocks = block_bytes(Counts(2, 0), num_layers=5)
    lane = SlowLane()
    copying = tier(blocks, 1, lane=lane, by_layer=by_layer)
    slot = copying.index.store(evicted(1))
    assert slot is not None
    copying.index.lock([slot])
    copying.run([Pair(0, slot)], [Pair(1, slot)])
    seen = []
    for layer in range(5):
        copying.before_layer(layer)
        seen.append(lane.waits)
    # One wait for the saves, then one for each layer.
    assert seen == ([2, 3, 4, 5, 6] if by_layer else [6] * 5)


def test_a_copy_that_fails_leaves_no_block_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = block_bytes(Counts(3, 0))
    copying = tier(blocks, 3)
    copying.keep([evicted(1, block_id=0)])
    old = copying.index.find(evicted(1).key, evicted(1).token_ids, Format.FULL)
    assert old is not None
    slot = copying.index.store(evicted(2, block_id=1))
    assert slot is not None
    copying.index.lock([old, slot])

    def fails(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(BlockBytes, "scatter", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        copying.run([Pair(1, slot)], [Pair(2, old), Pair(2, slot)])
    assert copying.index.find(evicted(2).key, evicted(2).token_ids, Format.FULL) is None
    assert copying.index.find(evicted(1).key, evicted(1).token_ids, Format.FULL) == old
    assert copying.index.num_locked == 0
    copying.index.check_integrity()


def test_a_full_tier_is_a_problem_that_is_counted() -> None:
    problems = host_problems.Problems()
    blocks = block_bytes(Counts(3, 0))
    copying = tier(blocks, 1, problems=problems)
    copying.keep([evicted(1, block_id=0), evicted(2, block_id=1), evicted(3, block_id=2)])
    copying.settle()
    copying.settle()
    assert problems.counts == {"host_full": 2}
    assert copying.index.num_blocks == 1


def test_where_there_is_no_room_for_all_the_beginnings_of_texts_are_kept() -> None:
    blocks = block_bytes(Counts(3, 0))
    copying = tier(blocks, 2)
    first = evicted(1, block_id=0)
    second = evicted(2, block_id=1, parent=first.key)
    third = evicted(3, block_id=2, parent=second.key)
    copying.keep([third, second, first])
    assert [
        copying.index.find(block.key, block.token_ids, block.fmt) is None for block in (first, second, third)
    ] == [False, False, True]


def test_a_switch_keeps_the_blocks_only_if_they_mean_the_same() -> None:
    blocks = block_bytes(Counts(3, 0))
    copying = tier(blocks, 3)
    fill(blocks, 0, evicted(1).key)
    copying.keep([evicted(1, block_id=0)])
    more = block_bytes(Counts(5, 0))
    copying.replace(more, LINEAGE)
    slot = copying.index.find(evicted(1).key, evicted(1).token_ids, Format.FULL)
    assert slot is not None
    copying.index.lock([slot])
    copying.run([], [Pair(4, slot)])
    assert contents(more, 4) == expected(evicted(1).key, more.bytes_of[Format.FULL])
    copying.replace(more, b"another lineage".ljust(32))
    assert copying.index.num_blocks == 0
    copying.replace(block_bytes(Counts(3, 3)), b"another lineage".ljust(32))
    copying.keep([evicted(1, Format.QUANTIZED, block_id=3)])
    assert copying.index.num_blocks == 1


def test_the_folder_brings_blocks_back_after_a_restart(tmp_path: Path) -> None:
    def engine() -> tuple[BlockBytes, copies.Copies, disk_store.DiskStore]:
        blocks = block_bytes(Counts(4, 4))
        disk = disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems())
        return blocks, tier(blocks, 3, disk=disk), disk

    def settle(copying: copies.Copies) -> None:
        while copying.is_restoring:
            copying.settle()

    blocks, copying, _ = engine()
    made = [evicted(block_id, blocks.locate(block_id)[0], block_id=block_id) for block_id in range(8)]
    for block in made:
        fill(blocks, block.block_id, block.key)
        copying.keep([block])  # one after the other, so that the early ones are displaced in the tier
    copying.close(10.0)

    blocks, copying, disk = engine()
    settle(copying)
    assert copying.index.num_blocks >= 3
    num_found = 0
    for block in made:
        slot = copying.index.find(block.key, block.token_ids, block.fmt)
        if slot is None:
            continue
        num_found += 1
        copying.index.lock([slot])
        copying.run([], [Pair(block.block_id, slot)])
        assert contents(blocks, block.block_id) == expected(block.key, blocks.bytes_of[block.fmt])
    assert num_found == copying.index.num_blocks
    assert not disk.is_restoring, "there was no room for more"
    copying.replace(blocks, b"another lineage".ljust(32))
    settle(copying)
    assert copying.index.num_blocks == 0
    copying.replace(blocks, LINEAGE)
    settle(copying)
    assert copying.index.num_blocks >= 3
    copying.close(10.0)


def test_the_folder_gets_what_was_asked_for_once(tmp_path: Path) -> None:
    blocks = block_bytes(Counts(4, 0))
    copying = tier(blocks, 20, disk=disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems()))
    loaded, passing, hit = (evicted(name, block_id=name, hits=int(name == 2)) for name in range(3))
    slots = []
    for block in (loaded, passing, hit):
        fill(blocks, block.block_id, block.key)
        slot = copying.index.store(block)
        assert slot is not None
        slots.append(slot)
    copying.run([Pair(number, slot) for number, slot in enumerate(slots)], [])
    for _ in range(2):
        copying.index.lock(slots[:1])
        copying.run([], [Pair(3, slots[0])])
    # A block of the device pool that was hit there after its first copy was made.
    late = evicted(3, block_id=3, hits=0)
    slot = copying.index.store(late)
    assert slot is not None
    copying.run([Pair(3, slot)], [])
    copying.keep([late._replace(hits=1), passing])
    copying.close(10.0)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {block.key.hex() + ".kv" for block in (loaded, hit, late)}


def test_at_the_end_a_file_is_used_or_written_again(tmp_path: Path) -> None:
    """What came from the folder and is asked for still is not what goes first next time."""
    made = [evicted(number, block_id=number) for number in range(2)]
    paths = [tmp_path / f"{block.key.hex()}.kv" for block in made]
    for _ in range(2):
        blocks = block_bytes(Counts(2, 0))
        for block in made:
            fill(blocks, block.block_id, block.key)
        disk = disk_store.DiskStore(tmp_path, 1_000_000, host_problems.Problems())
        copying = tier(blocks, 2, disk=disk)
        while copying.is_restoring:
            copying.settle()
        if paths[0].exists():
            os.utime(paths[0], (1, 1))
            paths[1].unlink()
        copying.keep(made)
        copying.close(10.0)
        assert all(path.stat().st_mtime > 1 for path in paths)


def test_rehearsing_copies_something_both_ways() -> None:
    for counts in (Counts(3, 0), Counts(3, 5)):
        blocks = block_bytes(counts)
        copying = tier(blocks, 2)
        assert copying.most_rehearsed >= 2
        for block_id in range(sum(counts)):
            fill(blocks, block_id, bytes([block_id]))
        before = [contents(blocks, block_id) for block_id in range(sum(counts))]
        copying.rehearse_save(copying.most_rehearsed)
        copying.rehearse_load(1)
        copying.rehearse_load(copying.most_rehearsed)
        assert [contents(blocks, block_id) for block_id in range(sum(counts))] == before
        copying.index.check_integrity()
        assert (copying.saves_total, copying.loads_total) == (0, 0)
    assert tier(block_bytes(Counts(3, 0)), 0).most_rehearsed == 0


class Requests:
    """A scheduler in small: texts of a few blocks under a tiny pool and a tiny host tier.

    A load is executed some steps after it was scheduled, as copies on a GPU are, while other requests go
    on saving. Each block has contents that only its key has, so a wrong byte shows whose it is.
    """

    def __init__(self, counts: Counts, num_records: int, *, seed: int) -> None:
        self.random = random.Random(seed)
        self.blocks = block_bytes(counts)
        self.pool = cache_blocks.Pool(
            counts.full,
            BLOCK_SIZE,
            num_quantized=counts.quantized,
            caching=cache_blocks.Caching(1.0, 0.8),
        )
        self.pool.on_evict = self._evict
        self.copying = tier(self.blocks, num_records)
        self.saves: list[Pair] = []
        self.late: deque[tuple[list[Pair], list[int], list[bytes]]] = deque()
        self.tokens: dict[bytes, tuple[int, ...]] = {}
        """Of each key."""
        self.num_host_hits = 0

    def _evict(self, block: cache_blocks.Evicted) -> None:
        if (slot := self.copying.index.store(block)) is not None:
            self.saves.append(Pair(block.block_id, slot))

    def request(self, fmt: Format) -> None:
        """One step: find what is cached, load or compute the rest, let go of an earlier request."""
        length = self.random.randint(1, 3)
        texts = [(self.random.choice((1, 2)), 0)] + [(self.random.randint(3, 6), n) for n in range(1, length)]
        chain = [keys.root(LINEAGE, "")]
        tokens = []
        for name, place in texts:
            tokens.append((name, place, 0, 1))
            chain.append(keys.chain(chain[-1], tokens[-1], fmt))
        held: list[int] = []
        for key, token_ids in zip(chain[1:], tokens, strict=True):
            if (block_id := self.pool.find(key, token_ids)) is None:
                break
            held.append(block_id)
        self.pool.hold(held)
        index, slots = self.copying.index, []
        for key, token_ids in list(zip(chain[1:], tokens, strict=True))[len(held) :]:
            if (slot := index.find(key, token_ids, fmt)) is None:
                break
            slots.append(slot)
        if not self.pool.can_allocate(length - len(held), fmt):
            self.pool.release(held)
            self.complete(len(self.late))
            return
        index.lock(slots)
        loaded_from = len(held)
        held += self.pool.allocate(length - len(held), fmt)
        loads = [Pair(block_id, slot) for block_id, slot in zip(held[loaded_from:], slots, strict=False)]
        saves, self.saves = self.saves, []
        self.copying.run(saves, [])
        for place in range(loaded_from + len(loads), length):
            fill(self.blocks, held[place], chain[place + 1])
        self.num_host_hits += len(loads)
        self.late.append((loads, held, chain))
        self.tokens.update(zip(chain[1:], tokens, strict=True))
        if len(self.late) > self.random.randint(0, 2):
            self.complete(1)

    def complete(self, count: int) -> None:
        """The copies of the oldest requests take place: then every block must be what its key says."""
        for _ in range(count):
            loads, held, chain = self.late.popleft()
            saves, self.saves = self.saves, []
            self.copying.run(saves, loads)
            for place, block_id in enumerate(held):
                fmt, _ = self.blocks.locate(block_id)
                key, parent = chain[place + 1], chain[place]
                size = self.blocks.bytes_of[fmt]
                assert contents(self.blocks, block_id) == expected(key, size), "another block's bytes"
                if not self.pool.is_findable(block_id):
                    self.pool.publish(block_id, key, parent, self.tokens[key])
            self.pool.release(held)
            self.copying.index.check_integrity()

    def run(self, num_requests: int, formats: Sequence[Format]) -> None:
        for _ in range(num_requests):
            self.request(self.random.choice(formats))
        self.complete(len(self.late))
        assert self.copying.index.num_locked == 0
        self.pool.check_integrity()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("counts", "formats", "num_records"),
    [(Counts(8, 0), [Format.FULL], 3), (Counts(8, 9), [Format.FULL, Format.QUANTIZED], 4)],
)
def test_a_tiny_host_tier_under_stress_never_gives_another_blocks_bytes(
    counts: Counts, formats: list[Format], num_records: int, seed: int
) -> None:
    requests = Requests(counts, num_records, seed=seed)
    requests.run(300, formats)
    assert requests.num_host_hits > 10, "nothing was tested"


def test_the_stress_sees_a_slot_that_is_overwritten_during_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the locks of loads it does."""

    def unlock(self: host.HostIndex, slots: Sequence[int]) -> None:
        for slot in slots:
            if slot in self._by_slot:
                self._by_slot[slot].num_locks = 0

    monkeypatch.setattr(host.HostIndex, "lock", lambda self, slots: None)
    monkeypatch.setattr(host.HostIndex, "unlock", unlock)
    requests = Requests(Counts(8, 0), 3, seed=0)
    with pytest.raises(AssertionError, match="another block's bytes"):
        requests.run(300, [Format.FULL])
