"""Attention over the paged KV cache, for a step that mixes decodes and prefill chunks.

Every query sees the keys of its own sequence up to its own position (causal, aligned to the bottom
right: the last query of a chunk sees the whole context). The current chunk is read back through the
cache like everything before it, so a chunk boundary never changes which numbers are attended to.

Decodes (one query a sequence) are batched: slots are gathered into [B, L] rows, padded with the
sequence's own first slot (always written, so stale memory can hold anything) and masked. The query heads that
share a KV head go to the library as if they were that many queries: at one token a sequence this was
up to ten times faster on a CPU than its own grouped-query mode or a matrix product per KV head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True)
class PrefillChunk:
    """One sequence's chunk of this step. Its queries are rows `first_row ..` of the step."""

    first_row: int
    num_tokens: int
    context_slots: torch.Tensor
    """[context] int64: slots of every token of the sequence up to the chunk's last."""
    mask: torch.Tensor | None
    """[num_tokens, context] bool, True = seen; None: the chunk is the whole context (plain causal)."""


@dataclass(frozen=True)
class Plan:
    """Where each query of one step finds its keys. The same for all layers. Decodes come first."""

    num_decodes: int
    decode_slots: torch.Tensor
    """[B, L] int64, L = longest context; past a row's context: its first slot."""
    decode_bias: torch.Tensor | None
    """[B, 1, 1, L] fp32: 0 where seen, -inf past the context; None: every row is full."""
    prefills: tuple[PrefillChunk, ...]


@dataclass(frozen=True)
class Prefill:
    """One prefill chunk as the scheduler sees it."""

    block_table: list[int]
    num_tokens: int
    context: int
    """Tokens of the sequence up to the chunk's last."""


def plan(
    decode_table: torch.Tensor,
    decode_contexts: torch.Tensor,
    prefills: Sequence[Prefill],
    block_size: int,
    device: torch.device,
) -> Plan:
    """Prepare one step. Everything is computed on the host and sent to `device` once.

    decode_table: [B, most blocks] int64, rows padded with -1; decode_contexts: [B] int64, tokens of each
    decoding sequence, its new one included. `prefills` are in row order after the decodes.
    """
    num_decodes = len(decode_contexts)
    longest = int(decode_contexts.max()) if num_decodes else 0
    offsets = torch.arange(longest)
    unseen = offsets[None, :] >= decode_contexts[:, None]  # [B, L]
    blocks = decode_table[:, offsets // block_size]
    slots = torch.where(unseen, decode_table[:, :1] * block_size, blocks * block_size + offsets % block_size)
    bias = None
    if bool(unseen.any()):
        bias = torch.zeros((num_decodes, 1, 1, longest)).masked_fill_(unseen[:, None, None], float("-inf"))
        bias = bias.to(device)
    chunks = []
    row = num_decodes
    for prefill in prefills:
        offsets = torch.arange(prefill.context)
        context_slots = torch.tensor(prefill.block_table)[offsets // block_size] * block_size
        context_slots += offsets % block_size
        mask = None
        if prefill.num_tokens < prefill.context:
            query_positions = offsets[prefill.context - prefill.num_tokens :]
            mask = (offsets[None, :] <= query_positions[:, None]).to(device)
        chunks.append(PrefillChunk(row, prefill.num_tokens, context_slots.to(device), mask))
        row += prefill.num_tokens
    return Plan(num_decodes, slots.to(device), bias, tuple(chunks))


def written_slots(step: Plan, decode_contexts: torch.Tensor) -> torch.Tensor:
    """Slots of the step's own tokens, in row order.  -> [T] int64 on the plan's device."""
    last = decode_contexts.to(step.decode_slots.device)[:, None] - 1
    parts = [step.decode_slots.gather(1, last).squeeze(1)] if step.num_decodes else []
    parts += [chunk.context_slots[-chunk.num_tokens :] for chunk in step.prefills]
    return torch.cat(parts)


def reference(queries: torch.Tensor, cache_layer: torch.Tensor, step: Plan, scale: float) -> torch.Tensor:
    """One query at a time, in fp64.  Shapes as `attention`."""
    out = torch.empty_like(queries)
    group = queries.shape[1] // cache_layer.shape[2]

    def attend(row: int, slots: torch.Tensor) -> None:
        keys = cache_layer[0, slots].double().repeat_interleave(group, dim=1)  # [context, heads, D]
        values = cache_layer[1, slots].double().repeat_interleave(group, dim=1)
        scores = torch.einsum("hd,chd->hc", queries[row].double(), keys) * scale
        out[row] = torch.einsum("hc,chd->hd", scores.softmax(-1), values).to(out.dtype)

    for row in range(step.num_decodes):
        slots = step.decode_slots[row]
        if step.decode_bias is not None:
            slots = slots[step.decode_bias[row, 0, 0] == 0]
        attend(row, slots)
    for chunk in step.prefills:
        history = len(chunk.context_slots) - chunk.num_tokens
        for offset in range(chunk.num_tokens):
            attend(chunk.first_row + offset, chunk.context_slots[: history + offset + 1])
    return out


def attention(queries: torch.Tensor, cache_layer: torch.Tensor, step: Plan, scale: float) -> torch.Tensor:
    """Attend to the cache; this step's keys and values must have been written to it.

    queries: [T, heads, D] in step order, cache_layer: [2, slots, KV heads, D] -> [T, heads, D].
    """
    if not step.prefills:
        return _decode(queries, cache_layer, step, scale)
    out = torch.empty_like(queries)
    if step.num_decodes:
        out[: step.num_decodes] = _decode(queries[: step.num_decodes], cache_layer, step, scale)
    for chunk in step.prefills:
        rows = slice(chunk.first_row, chunk.first_row + chunk.num_tokens)
        out[rows] = _prefill(queries[rows], cache_layer, chunk, scale)
    return out


def _prefill(
    queries: torch.Tensor, cache_layer: torch.Tensor, chunk: PrefillChunk, scale: float
) -> torch.Tensor:
    keys = cache_layer[0].index_select(0, chunk.context_slots)  # [context, KV heads, D]
    values = cache_layer[1].index_select(0, chunk.context_slots)
    attended = functional.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        scale=scale,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)  # [T, heads, D]


def _decode(queries: torch.Tensor, cache_layer: torch.Tensor, step: Plan, scale: float) -> torch.Tensor:
    num_decodes, longest = step.decode_slots.shape
    _, _, kv_heads, head_dim = cache_layer.shape
    gathered = cache_layer.index_select(1, step.decode_slots.view(-1))
    keys, values = gathered.view(2, num_decodes, longest, kv_heads, head_dim).transpose(2, 3)
    attended = functional.scaled_dot_product_attention(
        queries.view(num_decodes, kv_heads, -1, head_dim),  # [B, KV heads, group, D]
        keys,  # [B, KV heads, L, D]
        values,
        attn_mask=step.decode_bias,
        scale=scale,
    )
    return attended.reshape(num_decodes, -1, head_dim)
