"""Attention whose result for a query depends on that query and its own keys alone, to the last bit.

`softmax(q k^T * scale) v` with every product of one fixed shape: `QUERIES` positions of one sequence by
`KEYS` positions of it. Both kinds of tile begin at multiples of their size, so a position has the same
place in the same tile whether it is computed alone, in a batch, in a chunk or again after a preemption.
The largest score is taken over all keys at once (exact in any order); sums are taken within a key tile,
then over key tiles in order. Tiles that a query does not see add exact zeros, so reading more keys, or
padding to a longer neighbour, changes nothing. Everything is fp32, whatever the type of the cache;
a context of two formats lies in its tiles in the order of the sequence like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from firsttoken_kernels import paged_cache

QUERIES = 16
KEYS = 64
"""A multiple of QUERIES, so that every query of a tile sees at least its own key tile."""
_MOST_SLOTS = 16_384
"""Of one batch of decodes: bounds the memory of its scores."""


@dataclass(frozen=True)
class Tiles:
    """Query tiles that are computed together: one of each of some decoding sequences, or one of a chunk."""

    rows: torch.Tensor
    """[N] int64, rows of the step."""
    places: torch.Tensor
    """[N] int64, where each row lies in [tiles * QUERIES]."""
    context: paged_cache.Slots
    """Of [tiles, key tiles * KEYS]; past the context: a slot that was written."""
    unseen: torch.Tensor
    """[tiles, key tiles, 1, QUERIES, 1, KEYS] bool."""


def tiles(
    decode_table: torch.Tensor,
    decode_contexts: torch.Tensor,
    chunks: Sequence[tuple[torch.Tensor, int]],
    block_size: int,
    device: torch.device,
    window: int | None,
    num_full_slots: int | None = None,
) -> tuple[Tiles, ...]:
    """decode_table and decode_contexts as in `attention_plan.plan`; chunks: (slots of the context, tokens
    of the chunk), in row order after the decodes."""

    def split(slots: torch.Tensor) -> paged_cache.Slots:
        return paged_cache.slots(slots.reshape(-1), device, num_full_slots, in_place=False)

    made = []
    for rows in _groups(decode_contexts.tolist()):
        positions = decode_contexts[rows] - 1
        first, end = _key_range(positions, positions, window)
        offsets = first + torch.arange(end - first)[None, :]
        known = offsets.where(offsets <= positions[:, None], positions[:, None])
        table = decode_table[rows]
        slots = table.gather(1, known // block_size) * block_size + known % block_size
        places = torch.arange(len(rows)) * QUERIES + positions % QUERIES
        made.append(_tiles(torch.tensor(rows), places, split(slots), positions, first, end, window, device))
    row = len(decode_contexts)
    for slots, num_tokens in chunks:
        position, context = len(slots) - num_tokens, len(slots)
        while position < context:
            count = min(QUERIES - position % QUERIES, context - position)
            positions = torch.arange(position, position + count)
            first, end = _key_range(positions[:1], positions[-1:], window)
            known = torch.arange(first, end).clamp(max=context - 1)
            made.append(
                _tiles(
                    torch.arange(row, row + count),
                    positions % QUERIES,
                    split(slots[known]),
                    positions[:1],
                    first,
                    end,
                    window,
                    device,
                )
            )
            position += count
            row += count
    return tuple(made)


def _groups(contexts: list[int]) -> list[list[int]]:
    """Rows of about equal context, so that padding costs little and memory is bounded."""
    groups: list[list[int]] = []
    for row in sorted(range(len(contexts)), key=lambda row: -contexts[row]):
        if not groups or (len(groups[-1]) + 1) * contexts[groups[-1][0]] > _MOST_SLOTS:
            groups.append([])
        groups[-1].append(row)
    return groups


def _key_range(
    first_queries: torch.Tensor, last_queries: torch.Tensor, window: int | None
) -> tuple[int, int]:
    """Positions `first .. end`, whole key tiles, that hold every key that any of the queries sees."""
    seen_from = 0 if window is None else max(int(first_queries.min()) // QUERIES * QUERIES - window + 1, 0)
    return seen_from // KEYS * KEYS, (int(last_queries.max()) // KEYS + 1) * KEYS


def _tiles(
    rows: torch.Tensor,
    places: torch.Tensor,
    context: paged_cache.Slots,
    positions: torch.Tensor,
    first: int,
    end: int,
    window: int | None,
    device: torch.device,
) -> Tiles:
    """positions: [tiles], any position of each query tile; first, end: of the keys' positions."""
    queries = (positions // QUERIES * QUERIES)[:, None, None] + torch.arange(QUERIES)[None, :, None]
    keys = first + torch.arange(end - first)[None, None, :]
    unseen = keys > queries  # [tiles, QUERIES, L]
    if window is not None:
        unseen |= keys <= queries - window
    by_tile = unseen.view(len(positions), QUERIES, -1, KEYS).transpose(1, 2)[:, :, None, :, None]
    return Tiles(rows.to(device), places.to(device), context, by_tile.contiguous().to(device))


def attention(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    step: Sequence[Tiles],
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    """queries: [T, heads, D] in step order -> [T, heads, D]."""
    out = torch.empty_like(queries)
    for some in step:
        out[some.rows] = _attend(queries[some.rows], cache_layer, some, scale, softcap).to(out.dtype)
    return out


def _attend(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    some: Tiles,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    """queries: [N, heads, D] -> [N, heads, D] fp32."""
    count, key_tiles = some.unseen.shape[:2]
    kv_heads, head_dim = cache_layer.num_kv_heads, cache_layer.head_dim
    group = queries.shape[1] // kv_heads
    tall = QUERIES * group
    gathered = cache_layer.gather(some.context).float()
    # [2, tiles, key tiles, KV heads, KEYS, D], contiguous: every product reads from its own aligned piece
    gathered = gathered.view(2, count, key_tiles, KEYS, kv_heads, head_dim).transpose(3, 4).contiguous()
    keys, values = gathered.view(2, count * key_tiles * kv_heads, KEYS, head_dim)
    placed = queries.new_zeros((count * QUERIES, kv_heads, group, head_dim), dtype=torch.float32)
    placed[some.places] = queries.view(-1, kv_heads, group, head_dim).float()
    placed = placed.view(count, 1, QUERIES, kv_heads, group, head_dim).transpose(2, 3)
    placed = placed.expand(-1, key_tiles, -1, -1, -1, -1).reshape(-1, tall, head_dim)

    scores = torch.bmm(placed, keys.transpose(1, 2)).mul_(scale)  # [tiles * key tiles * KV heads, tall, KEYS]
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    scores = scores.view(count, key_tiles, kv_heads, QUERIES, group, KEYS)
    scores.masked_fill_(some.unseen, float("-inf"))
    weights = scores.sub_(scores.amax(dim=(1, 5), keepdim=True)).exp_()
    sums = weights.sum(-1, keepdim=True)  # [tiles, key tiles, KV heads, QUERIES, group, 1]
    parts = torch.bmm(weights.view(-1, tall, KEYS), values).view(*sums.shape[:-1], head_dim)
    total, mass = parts[:, 0], sums[:, 0]
    for tile in range(1, key_tiles):
        total, mass = total + parts[:, tile], mass + sums[:, tile]
    attended = (total / mass).transpose(1, 2).reshape(count * QUERIES, -1, head_dim)
    return attended[some.places]
