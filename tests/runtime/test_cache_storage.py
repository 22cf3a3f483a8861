"""The buffer is cut into views that do not overlap, for every layout, without another allocation."""

import itertools

import pytest
import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import storage
from firsttoken_runtime.cache.formats import Format

CPU = torch.device("cpu")
BLOCK = 5
BUDGET = 60_000


def layouts(itemsize: int) -> list[cache_layout.Layout]:
    shape = cache_layout.Shape(num_layers=3, num_kv_heads=3, head_dim=14, itemsize=itemsize)
    return [
        cache_layout.within(BUDGET, shape, BLOCK, 40),
        *(
            cache_layout.within(
                BUDGET, shape, BLOCK, 40, kv_type=kv_type, full_precision_layers=kept, full_share=share
            )
            for kv_type in ("int8", "fp8")
            for kept in (0, 1, 2)
            for share in (0.0, 0.6)
        ),
    ]


def tensors(layers: list[paged_cache.LayerCache]) -> list[torch.Tensor]:
    return [piece for layer in layers for fmt in Format for piece in layer.pieces(fmt)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_views_have_their_own_bytes(dtype: torch.dtype) -> None:
    buffer = storage.allocate(BUDGET, 3, CPU)
    for layout in layouts(dtype.itemsize):
        layers = storage.carve(buffer, layout, dtype)
        assert len(layers) == 3
        taken: list[range] = []
        for tensor in tensors(layers):
            start = tensor.data_ptr() - buffer.data_ptr()
            assert start % cache_layout.ALIGNMENT_BYTES == 0
            assert tensor.is_contiguous()
            taken.append(range(start, start + tensor.numel() * tensor.dtype.itemsize))
        for before, after in itertools.pairwise(taken):
            assert before.stop <= after.start
        assert taken[-1].stop <= len(buffer)
        assert sum(map(len, taken)) == layout.num_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_block_has_as_many_bytes_as_the_layout_says(dtype: torch.dtype) -> None:
    buffer = storage.allocate(BUDGET, 3, CPU)
    for layout in layouts(dtype.itemsize):
        layers = storage.carve(buffer, layout, dtype)
        for fmt in Format:
            pieces = [piece for layer in layers for piece in layer.pieces(fmt)]
            assert all(piece.shape[1] == layout.counts[fmt] * BLOCK for piece in pieces)
            block = sum(piece[:, :BLOCK].numel() * piece.dtype.itemsize for piece in pieces)
            assert block == (layout.block_bytes(fmt) if layout.counts[fmt] else 0)


def test_types_of_the_layers() -> None:
    buffer = storage.allocate(BUDGET, 3, CPU)
    shape = cache_layout.Shape(3, 3, 14, 4)
    layout = cache_layout.within(BUDGET, shape, BLOCK, 40, kv_type="fp8", full_precision_layers=2)
    layers = storage.carve(buffer, layout, torch.float32)
    assert [layer.is_quantized for layer in layers] == [True, False, False]
    assert all(layer.dtype == torch.float32 for layer in layers)
    compact = [layer.compact for layer in layers]
    assert [each.stored.dtype for each in compact if each] == [
        torch.float8_e4m3fn,
        torch.float16,
        torch.float16,
    ]
    assert storage.half_dtype(torch.bfloat16) == torch.bfloat16


def test_every_layer_keeps_what_it_was_given() -> None:
    """Written everywhere first: a view that reached into a neighbour would show."""
    torch.manual_seed(0)
    buffer = storage.allocate(BUDGET, 3, CPU)
    for layout in layouts(4):
        layers = storage.carve(buffer, layout, torch.float32)
        num_slots = sum(layout.counts) * BLOCK
        where = paged_cache.slots(torch.randperm(num_slots), CPU, layout.num_full_slots)
        given = [torch.randn(2, num_slots, 3, 14) for _ in layers]
        for layer, (keys, values) in zip(layers, given, strict=True):
            layer.write(keys, values, where)
        for layer, expected in zip(layers, given, strict=True):
            torch.testing.assert_close(layer.gather(where), expected, rtol=0.07, atol=0.02)


def test_a_buffer_that_is_too_small_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="too small"):
        storage.carve(torch.empty(BUDGET // 2, dtype=torch.uint8), layouts(4)[0], torch.float32)
