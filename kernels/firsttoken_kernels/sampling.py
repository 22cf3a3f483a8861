"""Token choice: temperature, top-k, top-p and min-p filters, then the inverse of the cumulative sum.

Filters act on the stably sorted probabilities (ties by lower id), in the usual order: temperature,
top-k, top-p, min-p. Given one uniform a row the choice is a pure function of the logits.

A row gives the same bits whichever rows share the call: sums go through `cumsum` and `log_softmax`, which
walk each row in one order, and never through `sum` or `logsumexp`, which split a lone long row over threads.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

_LIKELIEST = 1024
_TILE_BYTES_CPU = 2 << 20
"""A tile this small stays in memory that the allocator has at hand; larger ones pay for fresh pages."""
_TILE_BYTES = 256 << 20


@dataclass(frozen=True)
class Filters:
    """One row each, as [R] tensors on the device of the logits."""

    temperatures: torch.Tensor
    """fp64, > 0."""
    top_k: torch.Tensor
    """int64; 0 or more than the vocabulary = off."""
    top_p: torch.Tensor
    """fp64, as `min_p`: 0.9 in fp32 is another number, and would keep another set."""
    min_p: torch.Tensor

    def of(self, rows: torch.Tensor | slice) -> "Filters":
        return Filters(self.temperatures[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows])


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """logits: [R, V] -> [R] int64, the first of equal largest."""
    return logits.argmax(dim=-1)


def sample(logits: torch.Tensor, filters: Filters, uniforms: torch.Tensor) -> torch.Tensor:
    """logits: [R, V] fp32, uniforms: [R] fp64 in [0, 1) -> [R] int64.

    A full sort of a large vocabulary costs more than the rest of a small model's step, and the answer
    nearly always lies among the likeliest tokens. So those are tried first, and only rows they cannot
    decide are sorted whole. Which way a row goes depends on that row alone.
    """
    tile = rows_per_tile(logits)
    tiles = [slice(start, start + tile) for start in range(0, len(logits), tile)]
    return torch.cat([_sample_tile(logits[rows], filters.of(rows), uniforms[rows]) for rows in tiles])


def rows_per_tile(logits: torch.Tensor) -> int:
    """How many rows of [R, V] to work on at once in fp64."""
    limit = _TILE_BYTES_CPU if logits.device.type == "cpu" else _TILE_BYTES
    return max(1, limit // (logits.shape[-1] * 8))


def _sample_tile(logits: torch.Tensor, filters: Filters, uniforms: torch.Tensor) -> torch.Tensor:
    if logits.shape[-1] <= 2 * _LIKELIEST:
        return _sample_sorted(logits, filters, uniforms)
    tokens, is_decided = _sample_likeliest(logits, filters, uniforms)
    rows = (~is_decided).nonzero().squeeze(1)
    if len(rows):
        tokens[rows] = _sample_sorted(logits[rows], filters.of(rows), uniforms[rows])
    return tokens


def _sample_likeliest(
    logits: torch.Tensor, filters: Filters, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [R], and whether each is what the whole row would give [R] bool."""
    ids = logits.topk(_LIKELIEST, dim=-1, sorted=False).indices.sort(dim=-1).values  # ties by lower id
    scaled = logits.double() / filters.temperatures[:, None]
    ordered, order = scaled.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    # Tokens equal to the last one may be missing: what is strictly above it is complete.
    complete = ordered > ordered[:, -1:]
    size = complete.sum(-1)
    whole_row = scaled.log_softmax(dim=-1).gather(-1, ids)
    probabilities = whole_row.gather(-1, order).exp() * complete
    ranks = torch.arange(_LIKELIEST, device=logits.device)[None, :]
    has_top_k = filters.top_k > 0
    limit = torch.where(has_top_k, filters.top_k, _LIKELIEST)
    kept = complete & (ranks < limit[:, None])
    mass = torch.where(has_top_k, _total(probabilities * kept), 1.0)
    probabilities = probabilities / mass[:, None]
    kept &= _passes(probabilities, filters)
    cumulative = (probabilities * kept).cumsum(-1)
    # A cut inside the complete part fixes the kept set; without any filter its mass is known to be 1.
    is_cut = (kept.sum(-1) < size) & (~has_top_k | (filters.top_k <= size))
    is_unfiltered = ~has_top_k & (filters.top_p >= 1) & (filters.min_p <= 0)
    targets = uniforms * torch.where(is_unfiltered, 1.0, cumulative[:, -1])
    picks = _pick(cumulative, kept, targets)
    is_decided = torch.where(is_unfiltered, targets < cumulative[:, -1], is_cut)
    return ids.gather(-1, order.gather(-1, picks)).squeeze(-1), is_decided


def _sample_sorted(logits: torch.Tensor, filters: Filters, uniforms: torch.Tensor) -> torch.Tensor:
    """The whole row, sorted."""
    vocabulary = logits.shape[-1]
    scaled = logits.double() / filters.temperatures[:, None]
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)  # [R, V], falling
    ranks = torch.arange(vocabulary, device=logits.device)[None, :]
    has_top_k = filters.top_k > 0
    kept = ranks < torch.where(has_top_k, filters.top_k, vocabulary)[:, None]
    probabilities = probabilities / torch.where(has_top_k, _total(probabilities * kept), 1.0)[:, None]
    kept &= _passes(probabilities, filters)
    cumulative = (probabilities * kept).cumsum(-1)
    return order.gather(-1, _pick(cumulative, kept, uniforms * cumulative[:, -1])).squeeze(-1)


def _passes(probabilities: torch.Tensor, filters: Filters) -> torch.Tensor:
    """Which of falling probabilities pass top-p and min-p; the first always does.  [R, N] -> [R, N] bool."""
    before = functional.pad(probabilities[:, :-1], (1, 0)).cumsum(-1)  # mass in front of each token
    passes = before < filters.top_p[:, None]
    passes[:, 0] = True
    return passes & (probabilities >= probabilities[:, :1] * filters.min_p[:, None])


def _total(values: torch.Tensor) -> torch.Tensor:
    """The sum of each row, in one order.  [R, N] -> [R]."""
    return values.cumsum(-1)[:, -1]


def _pick(cumulative: torch.Tensor, kept: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Ranks [R, 1] whose mass the targets fall into; rounding must not step past the kept set."""
    picks = torch.searchsorted(cumulative, targets[:, None], right=True)
    return torch.minimum(picks, (kept.sum(-1, keepdim=True) - 1).clamp(min=0))


def reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    """One row in plain Python."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    largest = logits[order[0]] / temperature
    weights = [math.exp(logits[token] / temperature - largest) for token in order]
    if top_k > 0:
        order, weights = order[:top_k], weights[:top_k]
    total = sum(weights)
    probabilities = [weight / total for weight in weights]
    kept, mass = [], 0.0
    for rank, (token, probability) in enumerate(zip(order, probabilities, strict=True)):
        if rank > 0 and mass >= top_p:
            break
        mass += probability
        if probability >= probabilities[0] * min_p:
            kept.append((token, probability))
    target = uniform * sum(probability for _, probability in kept)
    running = 0.0
    for token, probability in kept:
        running += probability
        if running > target:
            return token
    return kept[-1][0]
