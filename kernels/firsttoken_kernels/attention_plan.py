"""Where each query of one step finds its keys: computed once a step on the host, used by all layers.

Decodes (one query a sequence) are batched in groups of about equal context; a prefill chunk is on its
own. A layer with a sliding window has a layout of its own, so that it reads only the keys it may see.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from firsttoken_kernels import attention_invariant, paged_cache

Split = Callable[..., paged_cache.Slots]
"""`paged_cache.slots` of this step."""
_FREE_SLOTS = 4096
"""Padding up to this many slots in a decode batch is cheaper than another batch."""


@dataclass(frozen=True)
class Prefill:
    """One prefill chunk as the scheduler sees it."""

    block_table: list[int]
    num_tokens: int
    context: int
    """Tokens of the sequence up to the chunk's last."""


@dataclass(frozen=True)
class PrefillChunk:
    """One sequence's chunk of this step. Its queries are rows `first_row ..` of the step."""

    first_row: int
    num_tokens: int
    context: paged_cache.Slots
    """Slots of the tokens that some query of the chunk sees, up to the chunk's last."""
    window: int | None
    device: torch.device

    @functools.cached_property
    def mask(self) -> torch.Tensor | None:
        """[num_tokens, context] bool, True = seen; None: the chunk is the whole context (plain causal). Made
        when it is first asked for: a kernel does without."""
        context = len(self.context_slots)
        if context == self.num_tokens and (self.window is None or self.window >= context):
            return None
        keys = torch.arange(context)[None, :]
        queries = torch.arange(context - self.num_tokens, context)[:, None]
        mask = keys <= queries
        if self.window is not None:
            mask &= keys > queries - self.window
        return mask.to(self.device)

    @property
    def context_slots(self) -> torch.Tensor:
        return self.context.all


@dataclass(frozen=True)
class DecodeBatch:
    """Sequences with one query each whose contexts are about equally long."""

    rows: torch.Tensor | None
    """[B] int64, rows of the step; None: the first B rows in order."""
    context: paged_cache.Slots
    """[B * L], L = most keys seen; past a row's keys: its first one's slot."""
    shape: tuple[int, int]
    """[B, L]."""
    bias: torch.Tensor | None
    """[B, 1, 1, L] fp32: 0 where seen, -inf past the keys; None: every row is full."""

    @property
    def slots(self) -> torch.Tensor:
        """[B, L] int64."""
        return self.context.all.view(self.shape)


@dataclass(frozen=True)
class RaggedDecodes:
    """All sequences with one query each, for a kernel that walks each context where it lies."""

    slots: torch.Tensor
    """[sum of the contexts] int64."""
    starts: torch.Tensor
    """[B] int64: where each sequence's slots begin, in row order."""
    ends: torch.Tensor
    """[B] int64."""

    def rows(self) -> tuple[torch.Tensor, ...]:
        """The slots of each row."""
        bounds = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return tuple(self.slots[start:end] for start, end in bounds)


@dataclass(frozen=True)
class RaggedPrefills:
    """All prefill chunks, for a kernel that takes them at once."""

    slots: torch.Tensor
    """[sum of the contexts] int64: of the tokens that some query of a chunk sees, up to its last."""
    starts: torch.Tensor
    """[chunks] int64: where each chunk's slots begin."""
    ends: torch.Tensor
    """[chunks] int64."""
    first_rows: torch.Tensor
    """[chunks] int64: rows of the step that are the chunk's queries, its last tokens."""
    num_tokens: torch.Tensor
    """[chunks] int64."""
    num_scores: int
    """Pairs of a query and a slot of its chunk."""


@dataclass(frozen=True)
class Layout:
    """The keys of every query under one window."""

    decodes: tuple[DecodeBatch, ...]
    """None where they are ragged."""
    prefills: tuple[PrefillChunk, ...]
    ragged: RaggedDecodes | None = None
    ragged_prefills: RaggedPrefills | None = None
    """The same chunks once more."""


@dataclass(frozen=True)
class Plan:
    """Where each query of one step finds its keys. The same for all layers. Decodes come first."""

    num_decodes: int
    full: Layout
    own_slots: paged_cache.Slots
    """[T]: where the keys and values of the step's own tokens belong, in row order."""
    windowed: Mapping[int, Layout] = field(default_factory=dict)
    invariant: Mapping[int | None, tuple[attention_invariant.Tiles, ...]] | None = None
    """By window; None: the faster way is taken."""

    @property
    def decodes(self) -> tuple[DecodeBatch, ...]:
        return self.full.decodes

    @property
    def prefills(self) -> tuple[PrefillChunk, ...]:
        return self.full.prefills

    def layout(self, window: int | None) -> Layout:
        return self.full if window is None else self.windowed[window]


def plan(
    decode_table: torch.Tensor,
    decode_contexts: torch.Tensor,
    prefills: Sequence[Prefill],
    block_size: int,
    device: torch.device,
    *,
    windows: tuple[int, ...] = (),
    invariant: bool = False,
    num_full_slots: int | None = None,
    is_ragged: bool = False,
    are_prefills_ragged: bool = False,
) -> Plan:
    """Prepare one step. Everything is computed on the host and sent to `device` once.

    decode_table: [B, most blocks] int64, rows padded with -1; decode_contexts: [B] int64, tokens of each
    decoding sequence, its new one included. `prefills` are in row order after the decodes. `windows`:
    every window that some layer will ask for. `invariant`: a query's result must not depend on what
    else is in the step, or on how its prompt was cut. `num_full_slots`: slots from here on are compact.
    `is_ragged`, `are_prefills_ragged`: for `attention_decode` and `attention_prefill`.
    """
    split = functools.partial(paged_cache.slots, device=device, num_full_slots=num_full_slots)
    num_decodes = len(decode_contexts)
    newest = decode_contexts[:, None] - 1
    own_slots = [decode_table.gather(1, newest // block_size) * block_size + newest % block_size]
    chunk_slots = []
    for prefill in prefills:
        offsets = torch.arange(prefill.context)
        slots = torch.tensor(prefill.block_table)[offsets // block_size] * block_size + offsets % block_size
        own_slots.append(slots[-prefill.num_tokens :, None])
        chunk_slots.append(slots)

    own = split(torch.cat(own_slots).squeeze(1), in_place=False)

    def layout(window: int | None) -> Layout:
        ragged = None
        decodes: tuple[DecodeBatch, ...] = ()
        if is_ragged and num_decodes:
            ragged = _ragged(decode_table, decode_contexts, block_size, window)
        else:
            decodes = _decodes(decode_table, decode_contexts, block_size, split, device, window)
        row = num_decodes
        chunks = []
        for prefill, slots in zip(prefills, chunk_slots, strict=True):
            chunks.append(_chunk(row, prefill, slots, split, device, window))
            row += prefill.num_tokens
        together = _ragged_prefills(chunks) if are_prefills_ragged and chunks else None
        return Layout(decodes, tuple(chunks), ragged, together)

    if invariant:
        pieces = [(slots, prefill.num_tokens) for slots, prefill in zip(chunk_slots, prefills, strict=True)]
        by_window = {
            window: attention_invariant.tiles(
                decode_table, decode_contexts, pieces, block_size, device, window, num_full_slots
            )
            for window in (None, *windows)
        }
        return Plan(num_decodes, layout(None), own, {}, by_window)
    longest = max([*decode_contexts.tolist(), *(prefill.context for prefill in prefills)], default=0)
    full = layout(None)
    return Plan(
        num_decodes,
        full,
        own,
        {window: full if window >= longest else layout(window) for window in windows},
    )


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


def _chunk(
    row: int,
    prefill: Prefill,
    slots: torch.Tensor,
    split: Split,
    device: torch.device,
    window: int | None,
) -> PrefillChunk:
    first = 0 if window is None else max(prefill.context - prefill.num_tokens - window + 1, 0)
    return PrefillChunk(row, prefill.num_tokens, split(slots[first:]), window, device)


def _ragged_prefills(chunks: Sequence[PrefillChunk]) -> RaggedPrefills:
    lengths = [len(chunk.context_slots) for chunk in chunks]
    num_tokens = [chunk.num_tokens for chunk in chunks]
    ends = torch.tensor(lengths).cumsum(0)
    return RaggedPrefills(
        torch.cat([chunk.context_slots for chunk in chunks]),
        ends - torch.tensor(lengths),
        ends,
        torch.tensor([chunk.first_row for chunk in chunks]),
        torch.tensor(num_tokens),
        sum(map(operator.mul, num_tokens, lengths)),
    )


def _decodes(
    table: torch.Tensor,
    contexts: torch.Tensor,
    block_size: int,
    split: Split,
    device: torch.device,
    window: int | None,
) -> tuple[DecodeBatch, ...]:
    lengths = contexts if window is None else contexts.clamp(max=window)
    groups = batches(lengths.tolist())
    decodes = []
    for group in groups:
        rows = torch.tensor(sorted(group))
        slots, bias = _decode_slots(table[rows], contexts[rows], lengths[rows], block_size)
        decodes.append(
            DecodeBatch(
                None if len(groups) == 1 else rows.to(device),
                split(slots.view(-1), in_place=False),
                (slots.shape[0], slots.shape[1]),
                None if bias is None else bias.to(device),
            )
        )
    return tuple(decodes)


def _ragged(
    table: torch.Tensor, contexts: torch.Tensor, block_size: int, window: int | None
) -> RaggedDecodes:
    lengths = contexts if window is None else contexts.clamp(max=window)
    ends = lengths.cumsum(0)
    starts = ends - lengths
    rows = torch.repeat_interleave(lengths)  # [sum of the lengths]
    positions = torch.arange(len(rows)) + (contexts - ends)[rows]
    slots = table[rows, positions // block_size] * block_size + positions % block_size
    return RaggedDecodes(slots, starts, ends)


def _decode_slots(
    table: torch.Tensor, contexts: torch.Tensor, lengths: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Slots [B, L] and bias of `DecodeBatch` for the last `lengths` [B] tokens of `contexts` [B].
    table: [B, most blocks]."""
    offsets = torch.arange(int(lengths.max()))[None, :]
    unseen = offsets >= lengths[:, None]  # [B, L]
    positions = (contexts - lengths)[:, None] + offsets.where(~unseen, 0)
    slots = table.gather(1, positions // block_size) * block_size + positions % block_size
    if not bool(unseen.any()):
        return slots, None
    bias = torch.zeros(unseen.shape).masked_fill_(unseen, float("-inf"))
    return slots, bias[:, None, None, :]
