"""How far quantized keys and values move attention, sampled while serving.

For a prompt's first chunk the exact keys are at hand just after they were stored, so the same queries are
attended to both: with the exact keys, and with what is read back. The deviation of a layer is the mean,
over (query, head), of the largest |change of a probability| over the keys; the change of the output is its
relative L2. By default one layer of one prompt every 10 s, in turn: under a thousandth of the time.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from firsttoken_kernels import attention, attention_plan, paged_cache
from firsttoken_runtime import core
from firsttoken_runtime.model import architecture
from firsttoken_runtime.model.self_attention import Observe

EVERY_S = 10.0
LEAST_TOKENS = 8
"""A shorter chunk says little."""
MOST_QUERIES = 64
"""Of one chunk, evenly spread: bounds time and memory."""
_BINS = 1000
"""Percentiles are known to 0.001."""


@dataclass(frozen=True)
class Measured:
    """One layer and one chunk."""

    largest_changes: torch.Tensor
    """[queries, heads] fp32: the largest |change of a probability| over the keys."""
    changed_squares: float
    """Squares of the change of the output, summed."""
    squares: float
    """Of the exact output."""


def measure(
    queries: torch.Tensor,
    exact: torch.Tensor,
    stored: torch.Tensor,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Measured:
    """queries: [T, heads, D] of a prompt's beginning; exact, stored: [2 (keys, values), T, KV heads, D]."""
    num_tokens = len(queries)
    step = -(-num_tokens // MOST_QUERIES)
    rows = torch.arange(num_tokens - 1, -1, -step, device=queries.device)
    keys_at = torch.arange(num_tokens, device=queries.device)
    unseen = keys_at[None, :] > rows[:, None]
    if window is not None:
        unseen |= keys_at[None, :] <= rows[:, None] - window
    kv_heads = exact.shape[2]
    grouped = queries[rows].float().view(len(rows), kv_heads, -1, queries.shape[2]).permute(1, 2, 0, 3)

    def attend(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = context.float().transpose(1, 2)[:, :, None]  # [KV heads, 1, T, D]
        scores = torch.matmul(grouped, keys.transpose(-1, -2)) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1)
        return weights, torch.matmul(weights, values)

    weights, output = attend(exact)
    stored_weights, stored_output = attend(stored)
    changes = (stored_weights - weights).abs_().amax(-1).flatten(0, 1).T
    changed = (stored_output - output).square_().sum(dtype=torch.float64)
    return Measured(changes, float(changed), float(output.square().sum(dtype=torch.float64)))


@dataclass
class LayerTally:
    """What was measured of one layer."""

    num_samples: int = 0
    total: float = 0.0
    largest: float = 0.0
    changed_squares: float = 0.0
    squares: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * _BINS)

    @property
    def mean(self) -> float:
        return self.total / self.num_samples if self.num_samples else 0.0

    @property
    def relative_l2(self) -> float:
        return (self.changed_squares / self.squares) ** 0.5 if self.squares else 0.0

    @property
    def p999(self) -> float:
        return percentile(self.histogram, 0.999)

    def add(self, measured: Measured) -> None:
        """Numbers that are not finite belong to a prompt that fails: they are left out."""
        changes = measured.largest_changes.flatten()
        if not bool(changes.isfinite().all()) or measured.changed_squares != measured.changed_squares:
            return
        self.num_samples += len(changes)
        self.total += float(changes.sum(dtype=torch.float64))
        self.largest = max(self.largest, float(changes.max()))
        self.changed_squares += measured.changed_squares
        self.squares += measured.squares
        counts = torch.bincount((changes * _BINS).long().clamp_(max=_BINS - 1), minlength=_BINS)
        self.histogram = [old + new for old, new in zip(self.histogram, counts.tolist(), strict=True)]


def percentile(histogram: Sequence[int], part: float) -> float:
    """The upper end of the bin that holds it; bins share 0..1 evenly."""
    wanted, seen = part * sum(histogram), 0
    for index, count in enumerate(histogram):
        seen += count
        if count and seen >= wanted:
            return (index + 1) / len(histogram)
    return 0.0


class Monitor:
    """Chooses what is measured and keeps what was."""

    def __init__(
        self,
        config: architecture.ModelConfig,
        layers: Sequence[paged_cache.LayerCache],
        every_s: float = EVERY_S,
        *,
        all_layers: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """all_layers: of every chunk that is measured, not one in turn."""
        self._config = config
        self._every_s = every_s
        self._all_layers = all_layers
        self._clock = clock
        self._next_s = float("-inf")
        self.replace(layers)

    def replace(self, layers: Sequence[paged_cache.LayerCache]) -> None:
        """Begin anew with another cache: only layers that hold codes are measured."""
        self.tallies = {index: LayerTally() for index, layer in enumerate(layers) if layer.is_quantized}
        self._turns: Iterator[int] = itertools.cycle(self.tallies)
        self._summary: core.KvDeviation | None = None

    def observers(self, plan: attention.Plan) -> dict[int, Observe]:
        """By layer, what is to be shown the keys of this step; nothing for most steps."""
        if not self.tallies:
            return {}
        chunk = next(filter(_can_be_measured, plan.prefills), None)
        if chunk is None or (now := self._clock()) < self._next_s:
            return {}
        self._next_s = now + self._every_s
        layers = list(self.tallies) if self._all_layers else [next(self._turns)]
        return {layer: self._observer(layer, chunk) for layer in layers}

    def summary(self) -> core.KvDeviation | None:
        """None: nothing was measured yet. Every step reports it, few measure: it is made when they do."""
        return self._summary

    def _summarized(self) -> core.KvDeviation | None:
        measured = [tally for tally in self.tallies.values() if tally.num_samples]
        if not measured:
            return None
        together = [sum(counts) for counts in zip(*(tally.histogram for tally in measured), strict=True)]
        return core.KvDeviation(
            worst_layer_mean=max(tally.mean for tally in measured),
            p999=percentile(together, 0.999),
            largest=max(tally.largest for tally in measured),
            relative_l2=max(tally.relative_l2 for tally in measured),
            num_samples=sum(tally.num_samples for tally in measured),
        )

    def _observer(self, layer: int, chunk: attention_plan.PrefillChunk) -> Observe:
        def observe(
            queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: paged_cache.LayerCache
        ) -> None:
            rows = slice(chunk.first_row, chunk.first_row + chunk.num_tokens)
            measured = measure(
                queries[rows],
                torch.stack((keys[rows], values[rows])),
                cache.gather(chunk.context),
                self._config.attention_scale,
                window=self._config.layers[layer].window,
                softcap=self._config.attention_softcap,
            )
            self.tallies[layer].add(measured)
            self._summary = self._summarized()

        return observe


def _can_be_measured(chunk: attention_plan.PrefillChunk) -> bool:
    """All keys are the step's own, and some of them are stored as codes."""
    is_fresh = len(chunk.context_slots) == chunk.num_tokens
    return is_fresh and chunk.num_tokens >= LEAST_TOKENS and chunk.context.compact is not None
