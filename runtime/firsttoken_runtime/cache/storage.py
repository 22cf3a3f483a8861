"""The bytes of the KV cache: one buffer, and the views of it that a layout asks for.

The buffer is allocated once; another layout, as of a hot switch, is other views of the same bytes. Its
memory is not cleared, so a CPU's pages are taken only when a slot is first written; nothing may read a
slot before it was written under the layout in force.
"""

import math

import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime.cache import layout as cache_layout

CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def allocate(budget_bytes: int, num_layers: int, device: torch.device) -> torch.Tensor:
    """-> [bytes] uint8, enough for every layout within the budget."""
    return torch.empty(cache_layout.buffer_bytes(budget_bytes, num_layers), dtype=torch.uint8, device=device)


def half_dtype(compute: torch.dtype) -> torch.dtype:
    """Of the layers that are not quantized, in QUANTIZED blocks."""
    return compute if compute.itemsize == 2 else torch.float16


def carve(
    buffer: torch.Tensor, layout: cache_layout.Layout, dtype: torch.dtype
) -> list[paged_cache.LayerCache]:
    """The layers' caches as views of `buffer` [bytes] uint8. dtype: of the computation."""
    shape = layout.shape
    assert dtype.itemsize == shape.itemsize, (dtype, shape.itemsize)
    full, quantized = (count * layout.block_size_tokens for count in layout.counts)
    heads = (shape.num_kv_heads, shape.head_dim)
    taken = 0

    def view(kind: torch.dtype, *sizes: int) -> torch.Tensor:
        nonlocal taken
        num_bytes = math.prod(sizes) * kind.itemsize
        piece = buffer[taken : taken + num_bytes]
        assert len(piece) == num_bytes, f"the buffer of {len(buffer)} bytes is too small"
        taken += -(-num_bytes // cache_layout.ALIGNMENT_BYTES) * cache_layout.ALIGNMENT_BYTES
        return piece.view(kind).view(sizes)

    layers = []
    for index in range(shape.num_layers):
        plain = view(dtype, 2, full, *heads)
        compact = None
        if layout.is_quantized_layer(index):
            codes = view(CODES[layout.kv_type], 2, quantized, *heads)
            compact = paged_cache.Compact(codes, view(torch.float16, 2, quantized, shape.num_kv_heads))
        elif layout.is_quantized:
            compact = paged_cache.Compact(view(half_dtype(dtype), 2, quantized, *heads))
        layers.append(paged_cache.LayerCache(plain, compact))
    return layers
