"""What routing between replicas gains, as data and as Markdown. Pure."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import bars, ending, pieces, routing, summary
from firsttoken_runtime.bench.result import Context

TITLE = "Routing between replicas"
LATE_S = 0.1


@dataclass(frozen=True)
class Measured:
    """A run of `bench routing`."""

    samples: tuple[routing.Sample, ...]
    duration_s: float
    context: Context
    ended: str = ""
    """Why it ended before its last load; else empty."""

    @property
    def is_complete(self) -> bool:
        return not self.ended

    def verdicts(self) -> list[bars.Verdict]:
        return routing.judge(self.samples)


def flat(done: Measured) -> dict[str, float | int | bool | str | None]:
    """For scripts."""
    keys = (
        *("skewed_least_backlog_p95_ratio", "skewed_prefix_aware_p95_ratio"),
        *("shared_hit_ratio", "lost_before_first_byte"),
    )
    values = {key: one.value for key, one in zip(keys, done.verdicts(), strict=True)}
    return {**values, "is_complete": done.is_complete}


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "routing",
        "is_complete": done.is_complete,
        "ended": done.ended,
        "context": dataclasses.asdict(done.context),
        "duration_s": done.duration_s,
        "bars": [bars.document(one) for one in done.verdicts()],
        "samples": [
            dataclasses.asdict(one) | {"figures": dataclasses.asdict(routing.figures(one))}
            for one in done.samples
        ],
    }


def markdown(done: Measured) -> str:
    parts = [
        f"# {TITLE}: {routing.ENGINES} paced engines",
        "",
        *_warnings(done),
        f"Engines compute nothing: each takes the time of one that prefills "
        f"{routing.PREFILL_TOKENS_PER_S} tokens/s. Sidecars and HTTP are real.",
        "",
        _samples(done),
        "",
        "## Bars",
        "",
        pieces.verdicts(done.verdicts()),
        *_errors(done),
        *pieces.measured_on(done.context),
    ]
    return "\n".join(parts) + "\n"


def reasons(done: Measured) -> list[str]:
    """Why the run does not count. The load with the killed engine may have errors."""
    failed = sum(
        1 for sample in done.samples if sample.load != routing.KILL for one in sample.records if one.error
    )
    return ending.reasons(failed, done.is_complete, done.ended)


def _warnings(done: Measured) -> list[str]:
    said = [*pieces.load_warnings(done.context), *pieces.ended_warning(done.ended)]
    late_s = max((one.late_most_s for one in done.samples), default=0.0)
    if late_s > LATE_S:
        said.append(f"**The client was late**: up to {late_s * 1e3:.0f} ms after a request was due.")
    lost_s = sum(one.lost_s for one in done.samples)
    if lost_s > LATE_S:
        said.append(f"**The machine was too slow for the pace**: engines lost {lost_s:.1f} s.")
    return [*said, ""] if said else []


def _samples(done: Measured) -> str:
    rows = []
    for sample in done.samples:
        one = routing.figures(sample)
        used = sum(sample.engines_used)
        shares = " / ".join(f"{tokens / used:.0%}" for tokens in sample.engines_used) if used else ""
        rows.append(
            (
                *(sample.load, routing.NAMES.get(sample.variant, sample.variant), str(one.requests)),
                _ms(one.ttft_p50_s, one.ttft_p95_s, one.ttft_p99_s),
                _ms(one.short_p95_s, one.long_p95_s),
                *(pieces.percent(one.hit_rate), shares or pieces.UNKNOWN),
                *(str(one.refused), str(one.lost), str(one.broken)),
            )
        )
    head = (
        *("load", "routing", "requests", "TTFT P50 / P95 / P99 ms", "P95 of short / long ms"),
        *("hit rate", "prompt tokens by engine", "refused", "lost before a byte", "broken later"),
    )
    return pieces.table(head, rows)


def _errors(done: Measured) -> list[str]:
    return pieces.errors(
        [
            summary.Round(f"{one.load}, {routing.NAMES.get(one.variant, one.variant)}", 0, 0.0, one.records)
            for one in done.samples
        ]
    )


def _ms(*values_s: float | None) -> str:
    return " / ".join(pieces.milliseconds(value) for value in values_s)
