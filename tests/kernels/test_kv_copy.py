"""The compiled copy stores the bytes of `kv_quant` and reads its numbers, edges included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import kv_copy, kv_quant, paged_cache, row_shares
from kernels import caches, ways

FULL, COMPACT, HEAD_DIM = 4, 40, 16
TYPES = (torch.bfloat16, torch.float16, torch.float32)
QUANTIZE = {"int8": kv_quant.quantize_int8, "fp8": kv_quant.quantize_fp8}
KINDS = pytest.mark.parametrize("kind", list(QUANTIZE))
WAYS = pytest.mark.parametrize("way", ways.COMPILED)
EDGES = [0.0, -0.0, 127.5, 448.0, 17.0, 19.0, 2**-6, 2**-7, 2**-10, 1e-8, 6e-8, 3.9e-6, 8.4e6, 3e38, 1e-44]


def cache(kind: str, dtype: torch.dtype, heads: int, head_dim: int = HEAD_DIM) -> paged_cache.LayerCache:
    return caches.poisoned(FULL, COMPACT, heads, head_dim, kind=kind, dtype=dtype)


def check(rows: torch.Tensor, kind: str, way: str) -> None:
    """rows: [n, heads, D], written to compact slots from the last one on backwards; as values from the last
    row on."""
    both = (rows, rows.flip(0))
    memory = cache(kind, rows.dtype, rows.shape[1], rows.shape[2]).memory
    slots = FULL + COMPACT - 1 - torch.arange(len(rows))
    out = torch.empty((2, *rows.shape), dtype=rows.dtype)
    with ways.taken(way):
        assert kv_copy.can_run(memory)
        kv_copy.write(both, memory, slots)
        kv_copy.read(tuple(out), memory, slots)
    assert memory.compact is not None
    assert memory.scales is not None
    for which, each in enumerate(both):
        codes, scales = QUANTIZE[kind](each)
        assert torch.equal(memory.compact[which].view(torch.uint8)[slots - FULL], codes.view(torch.uint8))
        stored = memory.scales[which][slots - FULL]
        assert torch.equal(stored.isnan(), scales.isnan())
        assert torch.equal(stored.nan_to_num(0).view(torch.int16), scales.nan_to_num(0).view(torch.int16))
        expected = kv_quant.dequantize(codes, scales, rows.dtype)
        torch.testing.assert_close(out[which], expected, rtol=0, atol=0, equal_nan=True)


@WAYS
@KINDS
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(37, 3, 64), (1, 1, 16), (5, 4, 80)], ids=str)
def test_equals_the_operations(shape: tuple[int, int, int], dtype: torch.dtype, kind: str, way: str) -> None:
    torch.manual_seed(shape[0])
    check(caches.spread(*shape).to(dtype), kind, way)


@WAYS
@KINDS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_numbers(kind: str, way: str, data: st.DataObject) -> None:
    number = st.floats(width=32) | st.sampled_from(EDGES)
    head = st.lists(number, min_size=HEAD_DIM, max_size=HEAD_DIM)
    heads = data.draw(st.lists(head, min_size=1, max_size=3))
    check(torch.tensor(heads)[None], kind, way)


@WAYS
@KINDS
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_halves_between_codes(dtype: torch.dtype, kind: str, way: str) -> None:
    """The scale is 1, so that quotients are the numbers: all codes, and what lies half way between two."""
    largest = 127.0 if kind == "int8" else 448.0
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes.view(torch.int8 if kind == "int8" else torch.float8_e4m3fn).float()
    codes = codes[codes.abs() <= largest].sort().values
    halves = torch.cat((codes, (codes[1:] + codes[:-1]) / 2)).to(dtype)
    halves = torch.cat((halves, halves.new_zeros(-len(halves) % 15))).view(-1, 15)
    check(torch.cat((halves, halves.new_full((len(halves), 1), largest)), dim=1)[:, None], kind, way)


@WAYS
@KINDS
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_stays_seen_and_in_its_head(bad: float, kind: str, way: str) -> None:
    x = torch.randn(4, 3, HEAD_DIM)
    x[1, 2, 5] = bad
    check(x, kind, way)


@WAYS
@KINDS
def test_rows_of_a_wider_matrix_and_threads(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    wide = caches.spread(29, 5, HEAD_DIM).bfloat16()
    check(wide[:, 2:4], kind, way)
    check(wide.transpose(0, 1)[:, :3], kind, way)  # heads do not lie side by side
    monkeypatch.setattr(row_shares, "_LEAST_ELEMENTS_A_THREAD", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    check(wide, kind, way)


@WAYS
@pytest.mark.parametrize("slot", [-1, FULL + COMPACT])
def test_a_slot_that_does_not_exist_is_not_written(slot: int, way: str) -> None:
    memory = cache("int8", torch.float32, 2).memory
    with ways.taken(way), pytest.raises(AssertionError, match="row 1 has a slot"):
        kv_copy.write(tuple(torch.zeros(2, 2, 2, HEAD_DIM)), memory, torch.tensor([3, slot]))
