"""Attention over the paged KV cache, for a step that mixes decodes and prefill chunks.

Every query sees the keys of its own sequence up to its own position (causal, aligned to the bottom
right: the last query of a chunk sees the whole context), or of these only the last `window`. The
current chunk is read back through the cache like everything before it, so a chunk boundary never
changes which numbers are attended to. What `paged_cache` gives is one context in the order of the
sequence, whatever formats its slots have, so nothing here knows of formats.

Decodes (one query a sequence) are batched: slots are gathered into [B, L] rows, padded with the
sequence's own first slot (always written, so stale memory can hold anything) and masked. The query heads that
share a KV head go to the library as if they were that many queries: at one token a sequence this was
up to ten times faster on a CPU than its own grouped-query mode or a matrix product per KV head. Where
there is a compiled kernel they go to it instead (`attention_decode`), and nothing is gathered. So do
prompts on a CPU with AMX (`attention_prefill`).
"""

import torch
from torch.nn import functional

from firsttoken_kernels import attention_decode, attention_invariant, attention_prefill, paged_cache
from firsttoken_kernels.attention_plan import DecodeBatch, PrefillChunk
from firsttoken_kernels.attention_plan import Plan as Plan
from firsttoken_kernels.attention_plan import Prefill as Prefill
from firsttoken_kernels.attention_plan import batches as batches
from firsttoken_kernels.attention_plan import plan as plan


def reference(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    step: Plan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """One query at a time, in fp64, from the plan without windows.  Shapes as `attention`."""
    out = torch.empty_like(queries)
    group = queries.shape[1] // cache_layer.num_kv_heads

    def attend(row: int, slots: torch.Tensor) -> None:
        seen = slots.tolist() if window is None else slots[-window:].tolist()
        context = torch.stack([paged_cache.reference(cache_layer, slot) for slot in seen], dim=1)
        keys, values = context.repeat_interleave(group, dim=2)  # [context, heads, D]
        scores = torch.einsum("hd,chd->hc", queries[row].double(), keys) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        out[row] = torch.einsum("hc,chd->hd", scores.softmax(-1), values).to(out.dtype)

    if step.full.ragged is not None:
        for row, slots in enumerate(step.full.ragged.rows()):
            attend(row, slots)
    for batch in step.decodes:
        rows = list(range(len(batch.slots))) if batch.rows is None else batch.rows.tolist()
        for index, row in enumerate(rows):
            slots = batch.slots[index]
            attend(row, slots if batch.bias is None else slots[batch.bias[index, 0, 0] == 0])
    for chunk in step.prefills:
        history = len(chunk.context_slots) - chunk.num_tokens
        for offset in range(chunk.num_tokens):
            attend(chunk.first_row + offset, chunk.context_slots[: history + offset + 1])
    return out


def attention(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    step: Plan,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
    num_rows: int | None = None,
) -> torch.Tensor:
    """Attend to the cache; this step's keys and values must have been written to it.

    queries: [T, heads, D] in step order -> [num_rows, heads, D]: rows behind T are 0. None: T.
    window: how many of the last keys a query sees, itself included; one of those the plan was made with.
    softcap: scores are squashed to `softcap * tanh(score / softcap)`.
    """
    num_queries = len(queries)
    is_padded = num_rows is not None and num_rows > num_queries
    if step.invariant is not None:
        assert not is_padded, "a row's bits may not depend on how many there are"
        return attention_invariant.attention(queries, cache_layer, step.invariant[window], scale, softcap)
    layout = step.layout(window)
    if layout.ragged is None and layout.ragged_prefills is None and not is_padded:
        if len(layout.decodes) == 1 and not layout.prefills:
            return _decode(queries, cache_layer, layout.decodes[0], scale, softcap)
        if len(layout.prefills) == 1 and not layout.decodes:
            return _prefill(queries, cache_layer, layout.prefills[0], scale, softcap)
    out = queries.new_empty((num_queries if num_rows is None else num_rows, *queries.shape[1:]))
    if is_padded:
        out[num_queries:].zero_()
    if layout.ragged is not None or layout.ragged_prefills is not None:
        queries = queries.contiguous()
    if layout.ragged is not None:
        attention_decode.attention_decode(queries, cache_layer, layout.ragged, scale, softcap, out)
    if layout.ragged_prefills is not None:
        attention_prefill.attention_prefill(
            queries, cache_layer, layout.ragged_prefills, scale, window, softcap, out
        )
    for batch in layout.decodes:
        rows = slice(0, step.num_decodes) if batch.rows is None else batch.rows
        out[rows] = _decode(queries[rows], cache_layer, batch, scale, softcap)
    for chunk in layout.prefills if layout.ragged_prefills is None else ():
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_tokens)
        out[rows] = _prefill(queries[rows], cache_layer, chunk, scale, softcap)
    return out


def _prefill(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    chunk: PrefillChunk,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    keys, values = cache_layer.gather(chunk.context).transpose(1, 2)  # [KV heads, context, D]
    if softcap is not None:
        group = queries.shape[1] // len(keys)
        length = chunk.num_tokens
        mask = torch.ones(length, length, dtype=torch.bool, device=queries.device).tril_()
        grouped = queries.view(length, len(keys), group, -1).permute(1, 2, 0, 3)  # [KV heads, group, T, D]
        attended = _capped(
            grouped,
            keys[:, None],
            values[:, None],
            mask if chunk.mask is None else chunk.mask,
            scale,
            softcap,
        )
        return attended.permute(2, 0, 1, 3).flatten(1, 2)
    attended = functional.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        scale=scale,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)  # [T, heads, D]


def _decode(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    batch: DecodeBatch,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    size, longest = batch.slots.shape
    kv_heads, head_dim = cache_layer.num_kv_heads, cache_layer.head_dim
    gathered = cache_layer.gather(batch.context)
    keys, values = gathered.view(2, size, longest, kv_heads, head_dim).transpose(2, 3)
    grouped = queries.reshape(size, kv_heads, -1, head_dim)  # [B, KV heads, group, D]
    if softcap is not None:
        seen = None if batch.bias is None else batch.bias == 0
        attended = _capped(grouped, keys, values, seen, scale, softcap)
    else:
        attended = functional.scaled_dot_product_attention(
            grouped,
            keys,  # [B, KV heads, L, D]
            values,
            attn_mask=batch.bias,
            scale=scale,
        )
    return attended.reshape(size, -1, head_dim)


def _capped(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor | None,
    scale: float,
    softcap: float,
) -> torch.Tensor:
    """The library's attention knows no soft-capping.  [..., T, D], [..., L, D] -> [..., T, D]."""
    scores = torch.matmul(queries, keys.transpose(-1, -2)).float().mul_(scale / softcap)
    scores = scores.tanh_().mul_(softcap)  # [..., T, L]
    if seen is not None:
        scores = scores.masked_fill_(~seen, float("-inf"))
    return torch.matmul(scores.softmax(-1).to(values.dtype), values)
