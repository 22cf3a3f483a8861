"""`bench timing`: can a tenant learn by timing whether another one's prompt is cached? Pure.

A pair is two prompts of the same length. One was just asked by another tenant, under another salt; nobody
has asked the other. A tenant who asks both, in random order, must not be able to tell them apart by their
TTFT: the AUC of cold against other salt is 0.5 if the two are alike, 1 if the other tenant's is always
faster. As a control it asks the cold one once more, under its own salt: that is found and must be faster, or
the measure could not see what it looks for.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import bars, experiment, workload
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

PROMPT_TOKENS, OUTPUT_TOKENS = 192, 2
LEAST_PAIRS = 100
MOST_DIFFERENCE = 0.1
"""Of the AUC from 0.5."""
LEAST_CONTROL = 0.9
PARTS = 3
"""Of the pairs, each judged by itself: the spread."""
NEEDS = experiment.ServerNeeds(max_model_len=512, kv_tokens=16 * 512)
FLAGS = ("paged-kv", "continuous-batching", "chunked-prefill", "priority", "prefix-cache")
OTHER, OWN = "other tenant", "own"
"""Salts."""


@dataclass(frozen=True)
class Probe:
    """The prompts of one pair."""

    asked: workload.Request
    """Another tenant asks it first."""
    cold: workload.Request
    is_cold_first: bool


@dataclass(frozen=True)
class Sample:
    """TTFTs of one pair."""

    index: int
    cold_s: float
    other_s: float
    hit_s: float | None
    """The cold one, asked once more; None where that was not done."""
    is_cold_first: bool
    other_cached_tokens: int | None
    """What the server says that it found of the other tenant's."""


def probes(seed: int, pairs: int, token_ids: range = SAFE_TOKEN_IDS) -> list[Probe]:
    """Each order equally often."""
    generator = random.Random(seed)
    orders = [index % 2 == 0 for index in range(pairs)]
    generator.shuffle(orders)
    shape = (PROMPT_TOKENS, OUTPUT_TOKENS)
    made = workload.requests(generator, [shape] * (2 * pairs), token_ids=token_ids)
    return [
        Probe(asked, cold, order) for asked, cold, order in zip(made[::2], made[1::2], orders, strict=True)
    ]


def auc(slow: Sequence[float], fast: Sequence[float]) -> float | None:
    """How often one of `slow` is above one of `fast`; ties count half. None of nothing."""
    if not slow or not fast:
        return None
    above = sum((one > other) + 0.5 * (one == other) for one in slow for other in fast)
    return above / (len(slow) * len(fast))


def against_other(samples: Sequence[Sample]) -> float | None:
    return auc([one.cold_s for one in samples], [one.other_s for one in samples])


def against_hit(samples: Sequence[Sample]) -> float | None:
    return auc([one.cold_s for one in samples], [one.hit_s for one in samples if one.hit_s is not None])


def _difference(value: float | None) -> float | None:
    return None if value is None else abs(value - 0.5)


def judge(samples: Sequence[Sample]) -> list[bars.Verdict]:
    parts = [samples[part::PARTS] for part in range(PARTS)]
    differences = [value for part in parts if (value := _difference(against_other(part))) is not None]
    controls = [value for part in parts if (value := against_hit(part)) is not None]
    found = [float(one.other_cached_tokens) for one in samples if one.other_cached_tokens is not None]
    return [
        bars.of_values(
            experiment.Limit("AUC of cold against other salt, distance from 0.5", at_most=MOST_DIFFERENCE),
            _difference(against_other(samples)),
            differences,
        ),
        bars.of_values(experiment.Limit("pairs, interleaved", at_least=LEAST_PAIRS), len(samples)),
        bars.of_values(
            experiment.Limit("cached tokens found under another salt, most", at_most=0),
            max(found, default=None),
        ),
        bars.of_values(
            experiment.Limit("control: AUC of cold against a hit of its own", at_least=LEAST_CONTROL),
            against_hit(samples),
            controls,
        ),
    ]


def median_ms(values: Sequence[float]) -> float | None:
    return statistics.median(values) * 1e3 if values else None
