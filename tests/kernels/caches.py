"""Builders of a layer's cache in which every slot that nobody wrote reads as NaN."""

import torch

from firsttoken_kernels import paged_cache

CPU = torch.device("cpu")
CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
KINDS = ("int8", "fp8", "half")
"""Of compact slots: eight-bit codes, or fp16 as in layers that are not quantized."""


def poisoned(
    num_full: int,
    num_compact: int,
    kv_heads: int,
    head_dim: int,
    *,
    kind: str = "int8",
    dtype: torch.dtype = torch.float32,
) -> paged_cache.LayerCache:
    """kind: `full` has no compact slots but as many more full ones."""
    if kind == "full":
        num_full, num_compact = num_full + num_compact, 0
    full = torch.full((2, num_full, kv_heads, head_dim), torch.nan, dtype=dtype)
    shape = (2, num_compact, kv_heads, head_dim)
    if kind == "full":
        return paged_cache.LayerCache(full)
    if kind == "half":
        return paged_cache.LayerCache(full, paged_cache.Compact(torch.full(shape, torch.nan).half()))
    codes = torch.full(shape, 0x7F, dtype=torch.uint8).view(CODES[kind])  # NaN in e4m3
    return paged_cache.LayerCache(full, paged_cache.Compact(codes, torch.full(shape[:3], torch.nan).half()))


def spread(*shape: int) -> torch.Tensor:
    """[..., KV heads, D]: random numbers whose heads lie 100 apart in size, some of them all zero."""
    x = torch.randn(shape)
    sizes = 100.0 ** torch.arange(-1, shape[-2] - 1)
    x *= sizes[:, None] / sizes.max()
    x[torch.rand(shape[:-1]) < 0.05] = 0
    return x
