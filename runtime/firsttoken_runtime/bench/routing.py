"""`bench routing`: four engines behind four sidecars. Clients ask them in turn, as a Service would let them;
what differs is whether the sidecars send requests on.

Three loads: few very long prompts among short ones, prompts that share their beginnings, and the first one
with an engine that is killed. The engines are paced: two cores cannot carry four real ones. Pure.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import bars, experiment, lengths, overload, summary, workload

ENGINES = 4
HOSTS = tuple(f"127.0.0.{index}" for index in range(2, 2 + ENGINES))

TURNS, LEAST, PREFIX = "None", "LeastBacklog", "PrefixAware"
"""Strategies, as the sidecar's setting spells them. None: each serves what it is asked."""
NAMES = {TURNS: "in turn (no routing)", LEAST: "least backlog", PREFIX: "prefix-aware"}

PREFILL_TOKENS_PER_S = 2000
SHORT, LONG = "short", "long"
SHORT_TOKENS = lengths.Uniform(100, 300)
LONG_TOKENS = lengths.Uniform(9000, 11000)
LONG_SHARE = 0.02
SKEWED_PER_S = 11.0
"""About half of what four engines can compute."""

PREFIXES = 24
PREFIX_TOKENS = 1500
SUFFIX_TOKENS = lengths.Uniform(30, 120)
SHARED_PER_S = 4.0
STRETCH = 2.0
"""The one engine gets the same requests in twice the time: it has four times the work."""
OUTPUT_TOKENS = 8

KILLED = 1
"""Which engine."""
KILLED_AT = 0.35
"""Of the load's time."""
WORDS = ("time", "first", "token", "queue", "chunk", "block", "cache", "engine", "prompt", "stream", "pod")


@dataclass(frozen=True)
class Cached:
    """What all engines looked up and found meanwhile, in tokens."""

    looked_up: int
    found: int

    @property
    def hit_rate(self) -> float | None:
        return self.found / self.looked_up if self.looked_up else None


@dataclass(frozen=True)
class Sample:
    """One load under one strategy."""

    load: str
    variant: str
    records: tuple[summary.Record, ...]
    duration_s: float
    cached: Cached
    late_most_s: float = 0.0
    lost_s: float = 0.0
    """So much the machine kept the paced engines from their pace, all together."""
    engines_used: tuple[int, ...] = ()
    """Prompt tokens that each engine was given."""


@dataclass(frozen=True)
class Figures:
    """Of one sample. Times in seconds."""

    requests: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    short_p95_s: float | None
    long_p95_s: float | None
    hit_rate: float | None
    refused: int
    """Turned away with 429 or 503."""
    lost: int
    """Failed before their first content, and were not turned away."""
    broken: int
    """Failed after it."""


SKEWED, SHARED, KILL = "long prompts", "shared prefixes", "an engine is killed"
SINGLE = "one engine"


def text(generator: random.Random, tokens: int) -> str:
    """Words, of so many tokens."""
    size = tokens * workload.TEXT_BYTES
    words: list[str] = []
    length = 0
    while length <= size:
        words.append(generator.choice(WORDS) + str(generator.randint(0, 999)))
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


def skewed(seed: int, duration_s: float, per_s: float = SKEWED_PER_S) -> list[workload.Request]:
    """Few very long prompts among short ones, none alike."""
    generator = random.Random(f"skewed/{seed}")
    times_s = overload.times(seed, per_s, duration_s)
    mixture = lengths.Mixture(SHORT_TOKENS, LONG_TOKENS, LONG_SHARE)
    tokens = mixture.draw_many(generator, len(times_s))
    return [
        workload.Request(
            (),
            OUTPUT_TOKENS,
            LONG if count >= LONG_TOKENS.low else SHORT,
            arrival_s=at_s,
            text=text(generator, count),
        )
        for count, at_s in zip(tokens, times_s, strict=True)
    ]


def shared(seed: int, duration_s: float, per_s: float = SHARED_PER_S) -> list[workload.Request]:
    """Prompts that begin with one of few texts, some of which are asked for far more often."""
    generator = random.Random(f"shared/{seed}")
    prefixes = [text(generator, PREFIX_TOKENS) for _ in range(PREFIXES)]
    weights = [1 / (rank + 1) ** 0.5 for rank in range(PREFIXES)]
    return [
        workload.Request(
            (),
            OUTPUT_TOKENS,
            SHORT,
            arrival_s=at_s,
            text=generator.choices(prefixes, weights)[0] + text(generator, SUFFIX_TOKENS.draw(generator)),
        )
        for at_s in overload.times(seed + 1, per_s, duration_s)
    ]


def figures(sample: Sample) -> Figures:
    def percentile(percent: float, group: str | None = None) -> float | None:
        ttfts = [
            one.ttft_s for one in sample.records if one.ttft_s is not None and group in (None, one.group)
        ]
        return summary.percentile(ttfts, percent)

    failed = [one for one in sample.records if one.error]
    refused = [one for one in failed if one.door is not None and one.door.status in (429, 503)]
    broken = [one for one in failed if one.ttft_s is not None]
    return Figures(
        requests=len(sample.records),
        ttft_p50_s=percentile(50),
        ttft_p95_s=percentile(95),
        ttft_p99_s=percentile(99),
        short_p95_s=percentile(95, SHORT),
        long_p95_s=percentile(95, LONG),
        hit_rate=sample.cached.hit_rate,
        refused=len(refused),
        lost=len(failed) - len(refused) - len(broken),
        broken=len(broken),
    )


def find(samples: Sequence[Sample], load: str, variant: str) -> Figures | None:
    return next((figures(one) for one in samples if (one.load, one.variant) == (load, variant)), None)


def judge(samples: Sequence[Sample]) -> list[bars.Verdict]:
    turns = find(samples, SKEWED, TURNS)
    verdicts = []
    for variant in (LEAST, PREFIX):
        own = find(samples, SKEWED, variant)
        verdicts.append(
            bars.of_values(
                experiment.Limit(f"{SKEWED}, {NAMES[variant]} : in turn, TTFT P95", at_most=0.6),
                _ratio(own, turns, "ttft_p95_s"),
            )
        )
    single, homes = find(samples, SHARED, SINGLE), find(samples, SHARED, PREFIX)
    killed = find(samples, KILL, PREFIX)
    return [
        *verdicts,
        bars.of_values(
            experiment.Limit(f"{SHARED}, hit rate: {NAMES[PREFIX]} : one engine", at_least=0.9),
            _ratio(homes, single, "hit_rate"),
        ),
        bars.of_values(
            experiment.Limit(f"{KILL}: requests lost before their first byte", at_most=0.0),
            None if killed is None else float(killed.lost),
        ),
    ]


def _ratio(own: Figures | None, base: Figures | None, figure: str) -> float | None:
    if own is None or base is None:
        return None
    value, of = getattr(own, figure), getattr(base, figure)
    return value / of if value is not None and of else None
