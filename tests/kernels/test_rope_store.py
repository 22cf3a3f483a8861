"""Norm, rotation and store in one pass: as PyTorch's operations, in every pool, with poison around."""

import pytest
import torch

from firsttoken_kernels import paged_cache, rope, rope_store, row_shares
from kernels import caches, ways

CPU = caches.CPU
FULL, COMPACT = 40, 24
QUERY_HEADS, KV_HEADS = 9, 3
TYPES = (torch.bfloat16, torch.float16, torch.float32)
TOLERANCE = {torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 1e-5}


def inputs(
    rows: int, head_dim: int, dtype: torch.dtype, *, rotated: bool = True, normed: bool = False
) -> tuple[torch.Tensor, rope_store.Rotation | None, rope_store.HeadNorms | None]:
    torch.manual_seed(0)
    heads = torch.randn(rows, QUERY_HEADS + 2 * KV_HEADS, head_dim).to(dtype)
    rotation = norms = None
    if rotated:
        frequencies = rope.frequencies(head_dim, 10_000.0, CPU)
        rotation = rope.cos_sin(torch.arange(rows) * 7, frequencies, dtype)
    if normed:
        of_weights = torch.float32 if dtype == torch.float16 else dtype
        query, key = torch.randn(2, head_dim).to(of_weights)
        norms = rope_store.HeadNorms(query, key, 1e-6)
    return heads, rotation, norms


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("head_dim", [6, 32, 64, 80, 96, 256])
def test_matches_the_formula(
    head_dim: int, rotated: bool, normed: bool, dtype: torch.dtype, way: str
) -> None:
    given = inputs(5, head_dim, dtype, rotated=rotated, normed=normed)
    with ways.taken(way):
        actual = rope_store.turned(given[0], 4, KV_HEADS, *given[1:])
    expected = rope_store.reference(given[0], 4, KV_HEADS, *given[1:])
    for mine, exact in zip(actual, expected, strict=True):
        assert mine.shape == exact.shape
        torch.testing.assert_close(mine, exact, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("way", ways.COMPILED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("normed", [False, True])
def test_16_bit_has_the_bits_of_the_operations(normed: bool, dtype: torch.dtype, way: str) -> None:
    heads, rotation, norms = inputs(300, 64, dtype, normed=normed)
    with ways.taken(way):
        actual = rope_store.turned(heads, 300, KV_HEADS, rotation, norms)
    with ways.taken(ways.OPERATIONS):
        expected = rope_store.turned(heads, 300, KV_HEADS, rotation, norms)
    for mine, theirs in zip(actual, expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", ["full", *caches.KINDS])
@pytest.mark.parametrize("wanted", [[7, 0, 4], [3, 50, 0, 40, 11], [63, 40, 41]], ids=str)
def test_every_pool_has_what_was_turned(wanted: list[int], kind: str, dtype: torch.dtype, way: str) -> None:
    """As the operations store it. Rows behind the slots are padding: nothing is stored for them. Other slots
    keep their poison."""
    heads, rotation, norms = inputs(len(wanted) + 2, 64, dtype, normed=True)
    heads[0, -1, 3] = torch.inf
    heads[1, -1] = 0
    cache, expected = (caches.poisoned(FULL, COMPACT, KV_HEADS, 64, kind=kind, dtype=dtype) for _ in range(2))
    where = paged_cache.slots(torch.tensor(wanted), CPU, None if kind == "full" else FULL)
    with ways.taken(way):
        queries = rope_store.rope_store(heads, cache, where, rotation, norms)
        turned, keys, values = rope_store.turned(heads, len(wanted), KV_HEADS, rotation, norms)
    with ways.taken(ways.OPERATIONS):
        expected.write(keys, values, where)
    assert torch.equal(queries, turned)
    for mine, theirs in zip(
        (*cache.pieces(0), *cache.pieces(1)), (*expected.pieces(0), *expected.pieces(1)), strict=True
    ):
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
    stored, wanted_back = cache.gather(where), expected.gather(where)
    torch.testing.assert_close(stored, wanted_back, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("way", ways.COMPILED)
def test_nan_stays_in_its_head(way: str) -> None:
    heads, rotation, norms = inputs(4, 64, torch.bfloat16, normed=True)
    heads[2, 5, 63] = torch.nan
    heads[1, QUERY_HEADS, 0] = torch.nan
    with ways.taken(way):
        queries, keys, values = rope_store.turned(heads, 4, KV_HEADS, rotation, norms)
    broken = queries.isnan().all(-1)
    assert broken.nonzero().tolist() == [[2, 5]]
    assert queries.isnan().any(-1).equal(broken)
    assert keys.isnan().any(-1).nonzero().tolist() == [[1, 0]]
    assert values.isfinite().all()


@pytest.mark.parametrize("way", ways.COMPILED)
def test_no_bits_of_a_row_depend_on_others_or_on_threads(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, rotation, norms = inputs(23, 64, torch.float32, normed=True)
    assert rotation is not None
    cos, sin = rotation
    with ways.taken(way):
        together = rope_store.turned(heads, 23, KV_HEADS, rotation, norms)
        for row in range(23):
            one = slice(row, row + 1)
            alone = rope_store.turned(heads[one], 1, KV_HEADS, (cos[one], sin[one]), norms)
            assert all(torch.equal(mine, all_[one]) for mine, all_ in zip(alone, together, strict=True))
        monkeypatch.setattr(row_shares, "_LEAST_ELEMENTS_A_THREAD", 1000)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        shared = rope_store.turned(heads, 23, KV_HEADS, rotation, norms)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(shared, together, strict=True))


@pytest.mark.parametrize("way", ways.COMPILED)
@pytest.mark.parametrize("slot", [-1, FULL])
def test_a_slot_that_does_not_exist_is_not_written(slot: int, way: str) -> None:
    heads, rotation, _ = inputs(2, 64, torch.float32)
    cache = caches.poisoned(FULL, 0, KV_HEADS, 64, kind="full")
    where = paged_cache.slots(torch.tensor([3, slot]), CPU)
    with ways.taken(way), pytest.raises(AssertionError, match="row 1 has a slot"):
        rope_store.rope_store(heads, cache, where, rotation, None)
