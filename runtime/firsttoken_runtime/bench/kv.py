"""`bench kv`: what quantized keys and values save, and what they cost in quality. Pure.

Bytes and capacity follow from the layout of the model. Quality is the likelihood that the engine gives the
same passages under each KV type, and how far attention moves in each layer. The passages take part in
batches under all types, so that a run that is cut off has the same ones for each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken_runtime.bench import bars, experiment, reference
from firsttoken_runtime.bench.scenarios import CHUNKED

KvType = Literal["full", "int8", "fp8"]
FULL: KvType = "full"
QUANTIZED: tuple[KvType, ...] = ("int8", "fp8")
TYPES: tuple[KvType, ...] = (FULL, *QUANTIZED)
JUDGED: KvType = "int8"
"""fp8 is reported."""
POOL_SEQUENCES = 64
"""Of the pool whose capacity is worked out: the default of `--max-num-seqs`."""
PARTS = 4
"""Of the passages, each judged by itself: the spread."""
WANTED_PASSAGES = 200


@dataclass(frozen=True)
class Passage:
    """One text under each KV type."""

    scored_tokens: int
    """All but the first."""
    loss: Mapping[str, float]
    """KV type -> negative log-likelihood, summed."""


@dataclass(frozen=True)
class Bytes:
    """One KV type in the layout of the model."""

    token_bytes: int
    half_token_bytes: int
    """The same with everything in 16 bit."""
    capacity: float
    """Tokens in a pool, by those of one of the same bytes with everything in 16 bit."""
    sentence: str
    pool_tokens: int
    """Of the engine of this run, both formats."""

    @property
    def factor(self) -> float:
        return self.token_bytes / self.half_token_bytes


@dataclass(frozen=True)
class Layer:
    """How far attention moves: for each (query, head) the largest |change of a probability| over the keys."""

    index: int
    mean: float
    p999: float
    largest: float
    relative_l2: float
    """Of the attention output."""
    samples: int


def variant(kv_type: str, full_precision_layers: int) -> experiment.Variant:
    """Nothing is shared or reused: only the KV type differs."""
    if kv_type == FULL:
        return experiment.Variant(FULL, CHUNKED)
    flag = f"kv-{kv_type}"
    params = {flag: {"fullPrecisionLayers": str(full_precision_layers)}}
    return experiment.Variant(kv_type, (*CHUNKED, flag), params)


def perplexity(passages: Sequence[Passage], kv_type: str) -> float | None:
    """Over all tokens of all passages; None of nothing."""
    tokens = sum(one.scored_tokens for one in passages)
    return math.exp(sum(one.loss[kv_type] for one in passages) / tokens) if tokens else None


def change(passages: Sequence[Passage], kv_type: str) -> float | None:
    """Of the perplexity, relatively."""
    base, now = perplexity(passages, FULL), perplexity(passages, kv_type)
    return now / base - 1 if base is not None and now is not None else None


def judge(
    passages: Sequence[Passage], bytes_of: Mapping[str, Bytes], layers: Mapping[str, Sequence[Layer]]
) -> list[bars.Verdict]:
    parts = [passages[part::PARTS] for part in range(PARTS)]
    changes = [abs(value) for part in parts if (value := change(part, JUDGED)) is not None]
    whole = change(passages, JUDGED)
    sizes, deviations = bytes_of.get(JUDGED), layers.get(JUDGED, ())

    def worst(figure: str) -> float | None:
        return max((getattr(one, figure) for one in deviations), default=None)

    return [
        bars.of_values(
            experiment.Limit(
                f"{JUDGED}: bytes of a private token / of one in 16 bit", at_most=reference.INT8_BYTES_FACTOR
            ),
            sizes.factor if sizes else None,
        ),
        bars.of_values(
            experiment.Limit(
                f"{JUDGED}: tokens in the same bytes / in 16 bit", at_least=reference.INT8_CAPACITY_FACTOR
            ),
            sizes.capacity if sizes else None,
        ),
        bars.of_values(
            experiment.Limit(
                f"{JUDGED}: change of the perplexity, either way", at_most=reference.KV_PERPLEXITY_CHANGE
            ),
            None if whole is None else abs(whole),
            changes,
        ),
        bars.of_values(experiment.Limit("passages scored", at_least=WANTED_PASSAGES), len(passages)),
        bars.of_values(
            experiment.Limit(f"{JUDGED}: deviation, worst layer", at_most=reference.INT8_DEVIATION),
            worst("mean"),
        ),
        bars.of_values(
            experiment.Limit(
                f"{JUDGED}: 99.9th percentile of the deviation, worst layer",
                at_most=reference.INT8_DEVIATION_P999,
            ),
            worst("p999"),
        ),
        bars.of_values(
            experiment.Limit(
                f"{JUDGED}: relative L2 of the attention output, worst layer",
                at_most=reference.INT8_OUTPUT_DEVIATION,
            ),
            worst("relative_l2"),
        ),
    ]
