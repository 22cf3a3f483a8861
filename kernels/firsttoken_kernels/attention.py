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

_FREE_SLOTS = 4096
"""Padding up to this many slots in a decode batch is cheaper than another batch."""


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
class DecodeBatch:
    """Sequences with one query each whose contexts are about equally long."""

    rows: torch.Tensor | None
    """[B] int64, rows of the step; None: the first B rows in order."""
    slots: torch.Tensor
    """[B, L] int64, L = longest context; past a row's context: its first slot."""
    bias: torch.Tensor | None
    """[B, 1, 1, L] fp32: 0 where seen, -inf past the context; None: every row is full."""


@dataclass(frozen=True)
class Plan:
    """Where each query of one step finds its keys. The same for all layers. Decodes come first."""

    num_decodes: int
    decodes: tuple[DecodeBatch, ...]
    prefills: tuple[PrefillChunk, ...]
    own_slots: torch.Tensor
    """[T] int64: where the keys and values of the step's own tokens belong, in row order."""


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
    newest = decode_contexts[:, None] - 1
    own_slots = [decode_table.gather(1, newest // block_size) * block_size + newest % block_size]
    groups = batches(decode_contexts.tolist())
    in_order = len(groups) == 1
    decodes = []
    for group in groups:
        rows = torch.tensor(sorted(group))
        slots, bias = _decode_slots(decode_table[rows], decode_contexts[rows], block_size)
        decodes.append(
            DecodeBatch(
                None if in_order else rows.to(device),
                slots.to(device),
                None if bias is None else bias.to(device),
            )
        )
    chunks = []
    row = num_decodes
    for prefill in prefills:
        offsets = torch.arange(prefill.context)
        context_slots = torch.tensor(prefill.block_table)[offsets // block_size] * block_size
        context_slots += offsets % block_size
        own_slots.append(context_slots[-prefill.num_tokens :, None])
        mask = None
        if prefill.num_tokens < prefill.context:
            query_positions = offsets[prefill.context - prefill.num_tokens :]
            mask = (offsets[None, :] <= query_positions[:, None]).to(device)
        chunks.append(PrefillChunk(row, prefill.num_tokens, context_slots.to(device), mask))
        row += prefill.num_tokens
    return Plan(num_decodes, tuple(decodes), tuple(chunks), torch.cat(own_slots).squeeze(1).to(device))


def batches(contexts: list[int]) -> list[list[int]]:
    """Group rows so that padding to the longest of a group costs little: at most `_FREE_SLOTS` slots or
    twice the real ones. One long context among many short ones would otherwise set the memory of all."""
    groups: list[list[int]] = []
    longest = real = 0
    for row in sorted(range(len(contexts)), key=lambda row: -contexts[row]):
        padded = longest * (len(groups[-1]) + 1) if groups else 0
        if not groups or padded > max(2 * (real + contexts[row]), _FREE_SLOTS):
            groups.append([])
            longest, real = contexts[row], 0
        groups[-1].append(row)
        real += contexts[row]
    return groups


def _decode_slots(
    table: torch.Tensor, contexts: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Slots [B, L] and bias of `DecodeBatch`.  table: [B, most blocks], contexts: [B]."""
    offsets = torch.arange(int(contexts.max()))
    unseen = offsets[None, :] >= contexts[:, None]  # [B, L]
    slots = table[:, offsets // block_size] * block_size + offsets % block_size
    if not bool(unseen.any()):
        return slots, None
    bias = torch.zeros(unseen.shape).masked_fill_(unseen, float("-inf"))
    return torch.where(unseen, table[:, :1] * block_size, slots), bias[:, None, None, :]


def reference(queries: torch.Tensor, cache_layer: torch.Tensor, step: Plan, scale: float) -> torch.Tensor:
    """One query at a time, in fp64.  Shapes as `attention`."""
    out = torch.empty_like(queries)
    group = queries.shape[1] // cache_layer.shape[2]

    def attend(row: int, slots: torch.Tensor) -> None:
        keys = cache_layer[0, slots].double().repeat_interleave(group, dim=1)  # [context, heads, D]
        values = cache_layer[1, slots].double().repeat_interleave(group, dim=1)
        scores = torch.einsum("hd,chd->hc", queries[row].double(), keys) * scale
        out[row] = torch.einsum("hc,chd->hd", scores.softmax(-1), values).to(out.dtype)

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


def attention(queries: torch.Tensor, cache_layer: torch.Tensor, step: Plan, scale: float) -> torch.Tensor:
    """Attend to the cache; this step's keys and values must have been written to it.

    queries: [T, heads, D] in step order, cache_layer: [2, slots, KV heads, D] -> [T, heads, D].
    """
    if len(step.decodes) == 1 and not step.prefills:
        return _decode(queries, cache_layer, step.decodes[0], scale)
    out = torch.empty_like(queries)
    for batch in step.decodes:
        rows = slice(0, step.num_decodes) if batch.rows is None else batch.rows
        out[rows] = _decode(queries[rows], cache_layer, batch, scale)
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


def _decode(
    queries: torch.Tensor, cache_layer: torch.Tensor, batch: DecodeBatch, scale: float
) -> torch.Tensor:
    size, longest = batch.slots.shape
    _, _, kv_heads, head_dim = cache_layer.shape
    gathered = cache_layer.index_select(1, batch.slots.view(-1))
    keys, values = gathered.view(2, size, longest, kv_heads, head_dim).transpose(2, 3)
    attended = functional.scaled_dot_product_attention(
        queries.reshape(size, kv_heads, -1, head_dim),  # [B, KV heads, group, D]
        keys,  # [B, KV heads, L, D]
        values,
        attn_mask=batch.bias,
        scale=scale,
    )
    return attended.reshape(size, -1, head_dim)
