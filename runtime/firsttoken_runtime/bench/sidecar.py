"""`bench sidecar`: what the sidecar costs. The same load straight to the engine and through the sidecar, in
turns.

What is added to a TTFT cannot be seen in one request: the engine's own share of it differs from one to the
next. So every request asks the engine for the TTFT that it has measured; the client's less the engine's is
the way there and back, and what is added is that way's P99 through the sidecar less that of the direct way.
Pure.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from firsttoken_runtime.bench import bars, experiment, lengths, summary, workload

WAYS = ("direct", "through")
STREAMS = 64
PROMPT = lengths.Uniform(16, 64)
OUTPUT = lengths.Uniform(16, 64)
"""Of different lengths, so that streams do not end together."""

ADDED = experiment.Limit("TTFT added at P99, ms", at_most=2.0)
THROUGHPUT = experiment.Limit("tokens/s through the sidecar : direct", at_least=0.95)
MEMORY = experiment.Limit("most memory of the sidecar, MB", at_most=100.0)
TORCH = experiment.Limit("libraries of torch in the sidecar (0 or 1)", at_most=0.0)


@dataclass(frozen=True)
class Sample:
    """One way, one repeat."""

    round: summary.Round
    sidecar_cpu_s: float = 0.0
    others: dict[str, float] = field(default_factory=dict)
    """Of each core, the share that processes used which do not belong there."""


@dataclass(frozen=True)
class Cost:
    """Of the sidecar's process."""

    peak_rss_bytes: int
    has_torch: bool
    stage_difference_ms: float | None = None
    """Mean of a request: its stages' sum against its TTFT, as the sidecar counts both."""
    unseen_ms: float | None = None
    """Mean TTFT of the clients less that of the sidecar."""


@dataclass(frozen=True)
class Figures:
    """One way. Milliseconds where it says so."""

    requests: int
    errors: int
    way_p50_ms: float | None
    """TTFT of the client less that of the engine, of requests that came while all streams were open."""
    way_p95_ms: float | None
    way_p99_ms: float | None
    burst_p50_ms: float | None
    """The same of the first ones, which all came at once."""
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    engine_ttft_p50_ms: float | None
    tokens_per_s: float
    sidecar_cpu_ms_per_request: float | None


def lane(seed: int, repeat: int, requests: int, streams: int, token_ids: range) -> workload.Lane:
    """The same for both ways; the salt of a round keeps them apart in the cache."""
    generator = random.Random(f"{seed}/{repeat}")
    shapes = [(PROMPT.draw(generator), OUTPUT.draw(generator)) for _ in range(requests)]
    return workload.closed(workload.requests(generator, shapes, token_ids=token_ids), streams)


def of(samples: Sequence[Sample], way: str) -> list[Sample]:
    return [one for one in samples if one.round.variant == way]


def figures(samples: Sequence[Sample], streams: int) -> Figures:
    records = [record for one in samples for record in one.round.records]
    steady_ms = ways_ms(samples, streams)
    burst_ms = _known(_way_ms(record) for one in samples for record in _ordered(one.round)[:streams])
    ttft_ms = [one.ttft_s * 1e3 for one in records if not one.error and one.ttft_s is not None]
    engine_ms = [one.server_timing.ttft_ms for one in records if not one.error and one.server_timing]
    tokens = sum(one.output_tokens for one in records if not one.error)
    duration_s = sum(one.round.duration_s for one in samples)
    cpu_s = sum(one.sidecar_cpu_s for one in samples)
    return Figures(
        requests=len(records),
        errors=sum(1 for one in records if one.error),
        way_p50_ms=summary.percentile(steady_ms, 50),
        way_p95_ms=summary.percentile(steady_ms, 95),
        way_p99_ms=summary.percentile(steady_ms, 99),
        burst_p50_ms=summary.percentile(burst_ms, 50),
        ttft_p50_ms=summary.percentile(ttft_ms, 50),
        ttft_p99_ms=summary.percentile(ttft_ms, 99),
        engine_ttft_p50_ms=summary.percentile(engine_ms, 50),
        tokens_per_s=tokens / duration_s if duration_s else 0.0,
        sidecar_cpu_ms_per_request=cpu_s * 1e3 / len(records) if records else None,
    )


def added_ms(samples: Sequence[Sample], streams: int) -> float | None:
    """At P99; below 0 where the direct way was the slower one by chance."""
    direct, through = (figures(of(samples, way), streams).way_p99_ms for way in WAYS)
    return None if direct is None or through is None else through - direct


def throughput_ratio(samples: Sequence[Sample], streams: int) -> float | None:
    direct, through = (figures(of(samples, way), streams).tokens_per_s for way in WAYS)
    return through / direct if direct and through else None


def judge(samples: Sequence[Sample], streams: int, cost: Cost | None) -> list[bars.Verdict]:
    repeats = sorted({one.round.repeat for one in samples})
    singles = [[one for one in samples if one.round.repeat == repeat] for repeat in repeats]
    added = [value for one in singles if (value := added_ms(one, streams)) is not None]
    ratios = [value for one in singles if (value := throughput_ratio(one, streams)) is not None]
    return [
        bars.of_values(ADDED, added_ms(samples, streams), added),
        bars.of_values(THROUGHPUT, throughput_ratio(samples, streams), ratios),
        bars.of_values(MEMORY, None if cost is None else cost.peak_rss_bytes / 1e6),
        bars.of_values(TORCH, None if cost is None else float(cost.has_torch)),
    ]


def ways_ms(samples: Sequence[Sample], streams: int) -> list[float]:
    """Without the first request of each stream: a client that sends 64 at once measures its own queue."""
    return _known(_way_ms(record) for one in samples for record in _ordered(one.round)[streams:])


def _ordered(round_: summary.Round) -> list[summary.Record]:
    return sorted(round_.records, key=lambda one: one.start_s)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _way_ms(record: summary.Record) -> float | None:
    if record.error or record.ttft_s is None or record.server_timing is None:
        return None
    return record.ttft_s * 1e3 - record.server_timing.ttft_ms


def client_ttfts_ms(samples: Sequence[Sample]) -> list[float]:
    """Of all requests that went through."""
    return [
        record.ttft_s * 1e3
        for one in of(samples, "through")
        for record in one.round.records
        if not record.error and record.ttft_s is not None
    ]
