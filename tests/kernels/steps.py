"""Steps of any shape over poisoned caches, and attention held against one query at a time in fp64."""

import random

import torch

from firsttoken_kernels import attention, paged_cache
from kernels import caches

CPU = caches.CPU
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Of the compiled kernels: of the output's own format, sums are fp32 in any case."""


def build(
    decode_contexts: list[int],
    prefills: list[tuple[int, int]],
    *,
    block_size: int,
    heads: int = 6,
    kv_heads: int = 2,
    head_dim: int = 8,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    windows: tuple[int, ...] = (),
    invariant: bool = False,
    is_scattered: bool = True,
    kind: str = "full",
    is_ragged: bool = False,
    are_prefills_ragged: bool = False,
) -> tuple[torch.Tensor, paged_cache.LayerCache, attention.Plan]:
    """Queries, a poisoned cache with the contexts written to scattered blocks, and the plan.

    prefills: (tokens in the chunk, context). kind: of the later part of each context (see `caches`).
    """
    torch.manual_seed(seed)
    lengths = decode_contexts + [context for _, context in prefills]
    needed = [-(-length // block_size) for length in lengths]
    draw = random.Random(seed)
    full = [0 if kind == "full" else draw.randint(0, count) for count in needed]
    compact = [count - first for count, first in zip(needed, full, strict=True)]
    num_full, num_compact = sum(full) + 2, sum(compact) + 3
    free_full = draw.sample(range(num_full), sum(full))
    free_compact = draw.sample(range(num_full, num_full + num_compact), sum(compact))
    if not is_scattered:
        free_full = list(range(sum(full), 0, -1))
        free_compact = list(range(num_full + sum(compact), num_full, -1))
    tables = [
        [free_full.pop() for _ in range(first)] + [free_compact.pop() for _ in range(then)]
        for first, then in zip(full, compact, strict=True)
    ]
    cache = caches.poisoned(
        num_full * block_size, num_compact * block_size, kv_heads, head_dim, kind=kind, dtype=dtype
    )
    num_full_slots = None if kind == "full" else num_full * block_size
    for table, length in zip(tables, lengths, strict=True):
        slots = torch.tensor([table[i // block_size] * block_size + i % block_size for i in range(length)])
        keys, values = caches.spread(2, length, kv_heads, head_dim).to(dtype)
        cache.write(keys, values, paged_cache.slots(slots, CPU, num_full_slots))
    widest = max(needed[: len(decode_contexts)], default=0)
    padded = [table + [-1] * (widest - len(table)) for table in tables[: len(decode_contexts)]]
    plan = attention.plan(
        torch.tensor(padded, dtype=torch.int64).view(len(decode_contexts), widest),
        torch.tensor(decode_contexts, dtype=torch.int64),
        [
            attention.Prefill(table, num_tokens, context)
            for table, (num_tokens, context) in zip(tables[len(decode_contexts) :], prefills, strict=True)
        ],
        block_size,
        CPU,
        windows=windows,
        invariant=invariant,
        num_full_slots=num_full_slots,
        is_ragged=is_ragged,
        are_prefills_ragged=are_prefills_ragged,
    )
    rows = len(decode_contexts) + sum(num_tokens for num_tokens, _ in prefills)
    return torch.randn(rows, heads, head_dim).to(dtype), cache, plan


def assert_as_reference(
    queries: torch.Tensor,
    cache: paged_cache.LayerCache,
    plan: attention.Plan,
    scale: float = 0.3,
    *,
    tolerance: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """tolerance: relative and absolute; None: that of the compiled kernels."""
    if tolerance is None:
        layout = plan.layout(window)
        assert layout.ragged or layout.ragged_prefills, "no compiled kernel is asked for"
        tolerance = TOLERANCE[queries.dtype]
    actual = attention.attention(queries, cache, plan, scale, window=window, softcap=softcap)
    expected = attention.reference(queries, cache, plan, scale, window=window, softcap=softcap)
    assert expected.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
