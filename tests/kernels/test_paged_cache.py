"""Write then read by slot, over both formats, with poison where nobody wrote."""

import pytest
import torch

from firsttoken_kernels import kv_quant, paged_cache
from kernels import caches, ways

CPU = caches.CPU
FULL, COMPACT = 12, 20
ALL_FULL, ALL_COMPACT, MIXED = [7, 0, 4], [31, 12, 20], [3, 30, 0, 12, 11]
RUNS = [[2, 3, 4], [14, 15, 16, 17]]


def read(cache: paged_cache.LayerCache, wanted: list[int]) -> torch.Tensor:
    return torch.stack([paged_cache.reference(cache, slot) for slot in wanted], dim=1)


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("wanted", [ALL_FULL, ALL_COMPACT, MIXED, *RUNS], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(2, 6), (1, 20), (3, 64)])
def test_what_was_written_is_read(
    kv_heads: int, head_dim: int, kind: str, dtype: torch.dtype, wanted: list[int], way: str
) -> None:
    torch.manual_seed(0)
    cache = caches.poisoned(FULL, COMPACT, kv_heads, head_dim, kind=kind, dtype=dtype)
    keys, values = caches.spread(2, len(wanted), kv_heads, head_dim).to(dtype)
    where = paged_cache.slots(torch.tensor(wanted), CPU, FULL)
    with ways.taken(way):
        cache.write(keys, values, where)
        found = cache.gather(where)
    assert found.dtype == dtype
    assert found.shape == (2, len(wanted), kv_heads, head_dim)
    torch.testing.assert_close(found, read(cache, wanted).to(dtype), rtol=0, atol=0)
    given = torch.stack((keys, values))
    full = [index for index, slot in enumerate(wanted) if slot < FULL]
    assert torch.equal(found[:, full], given[:, full])
    error = (found - given).abs().float() / given.abs().amax(-1, keepdim=True).float().clamp(min=1e-30)
    assert error.max() < {"int8": 0.012, "fp8": 0.08, "half": 0.001}[kind]
    untouched = [slot for slot in range(FULL + COMPACT) if slot not in wanted]
    assert read(cache, untouched).isnan().all()


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("head_dim", [10, 48])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_stored_bytes_equal_the_reference(kind: str, head_dim: int, way: str) -> None:
    torch.manual_seed(0)
    cache = caches.poisoned(FULL, COMPACT, 3, head_dim, kind=kind)
    keys, values = caches.spread(2, len(MIXED), 3, head_dim)
    with ways.taken(way):
        cache.write(keys, values, paged_cache.slots(torch.tensor(MIXED), CPU, FULL))
    assert cache.compact is not None
    assert cache.compact.scales is not None
    for index, slot in enumerate(MIXED):
        if slot < FULL:
            continue
        codes, scales = kv_quant.reference(torch.stack((keys[index], values[index])), kind)
        stored = cache.compact.stored[:, slot - FULL].view(torch.uint8)
        assert torch.equal(stored, codes.view(torch.uint8))
        assert torch.equal(cache.compact.scales[:, slot - FULL], scales)


def test_a_run_of_full_slots_is_read_in_place() -> None:
    for cache, first in (
        (caches.poisoned(FULL, 0, 2, 4, kind="full"), None),
        (caches.poisoned(FULL, 9, 2, 4), 12),
    ):
        found = cache.gather(paged_cache.slots(torch.arange(3, 9), CPU, first))
        assert found.untyped_storage().data_ptr() == cache.full.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("wanted", "first"),
    [([5, 6, 7], 5), ([12, 13], 12), ([11, 12], None), ([7, 6], None), ([5], 5), ([], None)],
)
def test_a_run_has_one_format(wanted: list[int], first: int | None) -> None:
    assert paged_cache.slots(torch.tensor(wanted, dtype=torch.int64), CPU, FULL).first == first


def test_each_slot_is_in_one_part() -> None:
    split = paged_cache.slots(torch.tensor(MIXED), CPU, FULL)
    assert split.full is not None
    assert split.compact is not None
    assert split.all.tolist() == MIXED
    found = dict(zip(split.full.places.tolist(), split.full.slots.tolist(), strict=True))
    found |= dict(zip(split.compact.places.tolist(), (split.compact.slots + FULL).tolist(), strict=True))
    assert [found[place] for place in range(len(MIXED))] == MIXED
    alone = paged_cache.slots(torch.tensor(MIXED), CPU)
    assert alone.full is None
    assert alone.compact is None


def test_fp16_slots_hold_what_fp16_cannot() -> None:
    cache = caches.poisoned(0, 4, 1, 4, kind="half")
    where = paged_cache.slots(torch.tensor([2]), CPU, 0)
    keys = torch.tensor([[[7e4, -1e30, 2.0, torch.nan]]])
    cache.write(keys, keys * torch.inf, where)
    found = cache.gather(where)
    torch.testing.assert_close(
        found[0, 0, 0], torch.tensor([65504.0, -65504.0, 2.0, torch.nan]), equal_nan=True
    )
    assert found[1].isnan().all()


@pytest.mark.parametrize("kind", ["full", *caches.KINDS])
def test_blocks_are_copied_as_bytes(kind: str) -> None:
    """What a host tier does: a block's pieces out, and into another block of the format."""
    torch.manual_seed(3)
    block, num_full = 4, None if kind == "full" else FULL
    cache = caches.poisoned(FULL, COMPACT, 2, 6, kind=kind)
    for fmt, source, target in ((0, 1, 2), (1, 0, 3)):
        pieces = cache.pieces(fmt)
        if kind == "full" and fmt == 1:
            assert pieces == ()
            continue
        first = 0 if fmt == 0 else FULL
        wanted = torch.arange(first + source * block, first + (source + 1) * block)
        keys, values = caches.spread(2, block, 2, 6)
        where = paged_cache.slots(wanted, CPU, num_full)
        cache.write(keys, values, where)
        for piece in pieces:
            as_bytes = piece.view(torch.uint8)
            chosen = as_bytes[:, source * block : (source + 1) * block]
            assert chosen[0].is_contiguous()
            as_bytes[:, target * block : (target + 1) * block] = chosen
        moved = paged_cache.slots(wanted + (target - source) * block, CPU, num_full)
        assert torch.equal(cache.gather(moved), cache.gather(where))
