"""Token choice: temperature, top-k, top-p and min-p filters, then the inverse of the cumulative sum.

Filters act on the stably sorted probabilities (ties by lower id), in the usual order: temperature,
top-k, top-p, min-p. Given one uniform a row the choice is a pure function of the logits.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Filters:
    """One row each, as [R] tensors on the device of the logits."""

    temperatures: torch.Tensor
    """> 0."""
    top_k: torch.Tensor
    """int64; 0 or more than the vocabulary = off."""
    top_p: torch.Tensor
    min_p: torch.Tensor


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """logits: [R, V] -> [R] int64, the first of equal largest."""
    return logits.argmax(dim=-1)


def sample(logits: torch.Tensor, filters: Filters, uniforms: torch.Tensor) -> torch.Tensor:
    """logits: [R, V] fp32, uniforms: [R] fp64 in [0, 1) -> [R] int64."""
    scaled = logits.double() / filters.temperatures.double()[:, None]
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)  # [R, V], falling
    vocabulary = logits.shape[-1]
    ranks = torch.arange(vocabulary, device=logits.device)[None, :]
    limit = torch.where(filters.top_k > 0, filters.top_k, vocabulary)
    kept = ranks < limit[:, None]
    probabilities = torch.where(kept, probabilities, 0.0)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    before = probabilities.cumsum(-1) - probabilities  # mass in front of each token
    kept &= (before < filters.top_p.double()[:, None]) | (ranks == 0)
    kept &= probabilities >= probabilities[:, :1] * filters.min_p.double()[:, None]
    cumulative = torch.where(kept, probabilities, 0.0).cumsum(-1)
    targets = uniforms[:, None] * cumulative[:, -1:]
    picks = torch.searchsorted(cumulative, targets, right=True)
    last_kept = kept.sum(-1, keepdim=True) - 1  # rounding must not step past the kept set
    return order.gather(-1, torch.minimum(picks, last_kept)).squeeze(-1)


def reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    """One row in plain Python."""
    import math

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
