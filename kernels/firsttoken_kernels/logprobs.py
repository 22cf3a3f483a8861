"""Logprobs of chosen tokens and of the likeliest ones: log-softmax of a row, ranks, and its top.

Only rows that were asked for come here. In fp64 and in small tiles of rows, so that memory is bounded by
the tile; a row gives the same bits whichever rows share the call (see `sampling`).
"""

import math
from dataclasses import dataclass

import torch

from firsttoken_kernels import sampling


@dataclass(frozen=True)
class Scores:
    """Of one row."""

    logprob: float
    rank: int
    """1 = the likeliest; ties by lower id."""
    top_ids: list[int]
    top_logprobs: list[float]


def score(logits: torch.Tensor, chosen: list[int], num_top: list[int]) -> list[Scores | None]:
    """logits: [R, V] fp32; chosen: a token id a row; num_top: how many of the likeliest a row wants.

    None for a row whose logits are not finite.
    """
    assert len(logits) == len(chosen) == len(num_top), (logits.shape, len(chosen), len(num_top))
    tile = sampling.rows_per_tile(logits)
    scores: list[Scores | None] = []
    for start in range(0, len(logits), tile):
        rows = slice(start, start + tile)
        scores += _score_tile(logits[rows], chosen[rows], num_top[rows])
    return scores


def _score_tile(logits: torch.Tensor, chosen: list[int], num_top: list[int]) -> list[Scores | None]:
    logprobs = logits.double().log_softmax(dim=-1)
    ids = torch.tensor(chosen, device=logits.device)[:, None]
    of_chosen = logits.gather(-1, ids)
    ranks = 1 + (logits > of_chosen).count_nonzero(dim=-1)
    reached = (logits >= of_chosen).count_nonzero(dim=-1)
    for row in (reached > ranks).nonzero().squeeze(-1).tolist():  # others are as likely as the chosen one
        ranks[row] += (logits[row, : chosen[row]] == of_chosen[row]).count_nonzero()
    largest = logits.amax(-1).isfinite().tolist()
    widest = min(max(num_top), logits.shape[-1])
    tops = _top(logits, widest) if widest else [[] for _ in chosen]
    results: list[Scores | None] = []
    for row, (logprob, rank) in enumerate(
        zip(logprobs.gather(-1, ids).squeeze(-1).tolist(), ranks.tolist(), strict=True)
    ):
        if not largest[row]:
            results.append(None)
            continue
        top_ids = tops[row][: num_top[row]]
        results.append(Scores(logprob, rank, top_ids, logprobs[row, top_ids].tolist() if top_ids else []))
    return results


def _top(logits: torch.Tensor, count: int) -> list[list[int]]:
    """The ids of the `count` largest of each row, falling, ties by lower id. `topk` alone leaves it open
    which of equal values it names."""
    least = logits.topk(count, dim=-1, sorted=True).values[:, -1:]
    tops = []
    for row, threshold in zip(logits, least, strict=True):
        candidates = (row >= threshold).nonzero().squeeze(-1)  # ids rise
        order = row[candidates].sort(descending=True, stable=True).indices[:count]
        tops.append(candidates[order].tolist())
    return tops


def reference(logits: list[float], chosen: int, num_top: int) -> Scores:
    """One row in plain Python."""
    largest = max(logits)
    log_total = largest + math.log(math.fsum(math.exp(value - largest) for value in logits))
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    top = order[:num_top]
    return Scores(
        logits[chosen] - log_total, order.index(chosen) + 1, top, [logits[token] - log_total for token in top]
    )
