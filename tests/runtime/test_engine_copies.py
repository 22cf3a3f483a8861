"""Copies between device blocks and the host tier: the bytes that arrive are those of the block, always."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from firsttoken_runtime.cache import host_problems
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import block_mover, copy_lane
from firsttoken_runtime.engine.block_bytes import BlockBytes
from runtime.host_tier import LINEAGE, block_bytes, contents, evicted, expected, fill, tier

Pair = block_mover.Pair


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
