"""From the projection to the attention: queries and keys are normed where a model does, and rotated; keys and
values go to their slots.

On a CPU a compiled kernel does it in one pass over a token's heads (`kernels/native/rope_store.c`), with the
numbers rounded where PyTorch's operations round them, and eight-bit codes made on the way. Where slots are of
another plain type than the rows, or somebody wants to see keys and values (`turned`), the same pass puts them
aside, so that a row is rotated the same way whatever the formats of the others.
"""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import torch

from firsttoken_kernels import cache_memory, native, paged_cache, rmsnorm, rope, row_shares

_VECTORS_OF_HALVES = 32
"""Both halves of a head are whole vectors of every instruction set."""
_MOST_HEAD_DIM = 1024
"""What fits on the kernel's stack."""

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of one step as `rope.cos_sin` has them: each [T, 1, D] in the type of the heads."""
Turned = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Queries [T, query heads, D], keys and values [T, KV heads, D]."""


@dataclass(frozen=True)
class HeadNorms:
    """Of each head of queries and of keys."""

    query: torch.Tensor
    """[D], in the type of the heads or in fp32; so is `key`."""
    key: torch.Tensor
    eps: float


def rope_store(
    heads: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    where: paged_cache.Slots,
    rotation: Rotation | None,
    norms: HeadNorms | None,
) -> torch.Tensor:
    """heads: [T + padding, query heads + 2 KV heads, D], queries before keys before values -> queries
    [T, query heads, D]; keys and values are stored. T: the slots."""
    if _can_run(heads) and (cache_layer.memory.takes_rows() or not cache_layer.has_compact(where)):
        return _run(heads, cache_layer.memory, where.all, len(where.all), rotation, norms)
    queries, keys, values = turned(heads, len(where.all), cache_layer.num_kv_heads, rotation, norms)
    cache_layer.write(keys, values, where)
    return queries


def turned(
    heads: torch.Tensor,
    num_tokens: int,
    kv_heads: int,
    rotation: Rotation | None,
    norms: HeadNorms | None,
) -> Turned:
    """What `rope_store` stores, of the first `num_tokens` rows."""
    if not _can_run(heads):
        return _by_operations(heads, num_tokens, kv_heads, rotation, norms)
    both = heads.new_empty(2, num_tokens, kv_heads, heads.shape[2])
    queries = _run(heads, cache_memory.CacheMemory(both), None, num_tokens, rotation, norms)
    return queries, both[0], both[1]


def _by_operations(
    heads: torch.Tensor,
    num_tokens: int,
    kv_heads: int,
    rotation: Rotation | None,
    norms: HeadNorms | None,
) -> Turned:
    num_queries = heads.shape[1] - 2 * kv_heads
    queries_keys, values = heads.tensor_split([num_queries + kv_heads], dim=1)
    if norms is not None:
        queries, keys = queries_keys.tensor_split([num_queries], dim=1)
        normed = (
            rmsnorm.rmsnorm(queries, norms.query, norms.eps),
            rmsnorm.rmsnorm(keys, norms.key, norms.eps),
        )
        queries_keys = torch.cat(normed, dim=1)
    if rotation is not None:
        queries_keys = rope.rotate(queries_keys, *rotation)
    queries, keys = queries_keys[:num_tokens].tensor_split([num_queries], dim=1)
    return queries, keys, values[:num_tokens]


def reference(
    heads: torch.Tensor,
    num_tokens: int,
    kv_heads: int,
    rotation: Rotation | None,
    norms: HeadNorms | None,
) -> Turned:
    """In fp64, nothing is rounded before the end.  Shapes as `turned`."""
    wide = None if rotation is None else (rotation[0].double(), rotation[1].double())
    queries, keys, values = torch.split(
        heads.double(), [heads.shape[1] - 2 * kv_heads, kv_heads, kv_heads], dim=1
    )
    if norms is not None:
        queries, keys = (
            x / (x.square().mean(-1, keepdim=True) + norms.eps).sqrt() * weight.double()
            for x, weight in ((queries, norms.query), (keys, norms.key))
        )
    if wide is not None:
        queries, keys = rope.rotate(queries, *wide), rope.rotate(keys, *wide)
    queries, keys, values = (x[:num_tokens].to(heads.dtype) for x in (queries, keys, values))
    return queries, keys, values


def _can_run(heads: torch.Tensor) -> bool:
    """By the shape of a row, the type and the machine, never by the number of rows."""
    head_dim = heads.shape[2]
    return (
        heads.is_cpu
        and heads.dtype in native.COMPUTED
        and head_dim % _VECTORS_OF_HALVES == 0
        and head_dim <= _MOST_HEAD_DIM
        and native.library() is not None
    )


def _run(
    heads: torch.Tensor,
    memory: cache_memory.CacheMemory,
    slots: torch.Tensor | None,
    num_tokens: int,
    rotation: Rotation | None,
    norms: HeadNorms | None,
) -> torch.Tensor:
    """slots: [num_tokens], where keys and values are written; None: in order -> queries."""
    library = native.library()
    assert library is not None
    rows, all_heads, head_dim = heads.shape
    query_heads = all_heads - 2 * memory.full.shape[2]
    dtype = heads.dtype
    assert rows >= num_tokens, rows
    assert heads.is_contiguous(), heads.stride()
    assert memory.full.dtype == dtype, dtype
    assert memory.full.shape[3] == head_dim, head_dim
    assert slots is None or slots.is_contiguous(), slots
    queries = torch.empty((num_tokens, query_heads, head_dim), dtype=dtype)
    cos = sin = query_weight = key_weight = None
    is_weight_wide, eps = False, 0.0
    if rotation is not None:
        cos, sin = (_address(each, dtype, num_tokens * head_dim) for each in rotation)
    if norms is not None:
        is_weight_wide, eps = norms.query.dtype == torch.float32, norms.eps
        of_weights = torch.float32 if is_weight_wide else dtype
        query_weight, key_weight = (_address(each, of_weights, head_dim) for each in (norms.query, norms.key))
    behind = (
        *(query_heads, cos, sin, query_weight, key_weight, is_weight_wide, eps, queries.data_ptr()),
        *(memory.address, None if slots is None else slots.data_ptr()),
    )
    kernel, address = _kernel(library), heads.data_ptr()
    row_shares.run_to_slots(
        lambda first_row, last_row: kernel(address, first_row, last_row, *behind),
        num_tokens,
        all_heads * head_dim,
    )
    return queries


def _address(values: torch.Tensor, dtype: torch.dtype, least: int) -> int:
    assert values.dtype == dtype, values.dtype
    assert values.is_contiguous(), values.stride()
    assert values.numel() >= least, values.shape
    return values.data_ptr()


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_rope_store
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    kernel.argtypes = (
        *(pointer, size, size, size),
        *(pointer, pointer, pointer, pointer, number, ctypes.c_float, pointer),
        *(pointer, pointer),
    )
    kernel.restype = size
    return kernel
