"""What the sidecar costs, as data and as Markdown. Pure."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import bars, ending, pieces, sidecar
from firsttoken_runtime.bench.result import Context, errors_of

TITLE = "What the sidecar costs"
IDLE = 0.05
"""Of a core. Above it others took time that the figures miss."""


@dataclass(frozen=True)
class Measured:
    """A run of `bench sidecar`."""

    samples: tuple[sidecar.Sample, ...]
    streams: int
    cost: sidecar.Cost | None
    context: Context
    ended: str = ""
    """Why it ended before its last round; else empty."""

    @property
    def errors(self) -> int:
        return errors_of([one.round for one in self.samples])

    @property
    def is_complete(self) -> bool:
        return not self.ended and all(one.round.is_complete for one in self.samples)

    def figures(self) -> dict[str, sidecar.Figures]:
        return {way: sidecar.figures(sidecar.of(self.samples, way), self.streams) for way in sidecar.WAYS}

    def verdicts(self) -> list[bars.Verdict]:
        return sidecar.judge(self.samples, self.streams, self.cost)


def flat(done: Measured) -> dict[str, float | int | bool | str | None]:
    """For scripts."""
    return {
        "added_ttft_p99_ms": sidecar.added_ms(done.samples, done.streams),
        "throughput_ratio": sidecar.throughput_ratio(done.samples, done.streams),
        "sidecar_rss_bytes": done.cost.peak_rss_bytes if done.cost else None,
        "torch_imported": done.cost.has_torch if done.cost else None,
        "streams": done.streams,
        "requests": sum(len(one.round.records) for one in done.samples),
        "errors": done.errors,
        "is_complete": done.is_complete,
    }


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "sidecar",
        "is_complete": done.is_complete,
        "ended": done.ended,
        "context": dataclasses.asdict(done.context),
        "streams": done.streams,
        "ways": {way: dataclasses.asdict(one) for way, one in done.figures().items()},
        "cost": dataclasses.asdict(done.cost) if done.cost else None,
        "bars": [bars.document(one) for one in done.verdicts()],
        "samples": [dataclasses.asdict(one) for one in done.samples],
    }


def markdown(done: Measured) -> str:
    parts = [
        f"# {TITLE}: {done.streams} streams at once",
        "",
        *_warnings(done),
        _ways(done),
        "",
        *_cost(done),
    ]
    parts += ["## Bars", "", pieces.verdicts(done.verdicts())]
    parts += pieces.errors([one.round for one in done.samples])
    parts += pieces.measured_on(done.context)
    return "\n".join(parts) + "\n"


def _warnings(done: Measured) -> list[str]:
    said = pieces.load_warnings(done.context)
    if not done.is_complete:
        said += pieces.ended_warning(done.ended or ending.TIME_UP)
    busiest: dict[str, float] = {}
    for one in done.samples:
        for core, share in one.others.items():
            busiest[core] = max(busiest.get(core, 0.0), share)
    for core, share in busiest.items():
        if share > IDLE:
            said.append(f"**Others used up to {share:.0%} of core {core}** during a round.")
    return [*said, ""] if said else []


def _ways(done: Measured) -> str:
    rows = []
    for way, one in done.figures().items():
        rows.append(
            (
                way,
                str(one.requests),
                _all(one.way_p50_ms, one.way_p95_ms, one.way_p99_ms),
                _all(one.burst_p50_ms),
                _all(one.ttft_p50_ms, one.ttft_p99_ms),
                _all(one.engine_ttft_p50_ms),
                f"{one.tokens_per_s:.1f}",
                _all(one.sidecar_cpu_ms_per_request),
                str(one.errors),
            )
        )
    head = (
        *("way", "requests", "TTFT client minus engine P50 / P95 / P99 ms", "the same, all at once P50 ms"),
        *(
            "TTFT P50 / P99 ms",
            "engine's TTFT P50 ms",
            "output tok/s",
            "sidecar's CPU ms a request",
            "errors",
        ),
    )
    return pieces.table(head, rows)


def _cost(done: Measured) -> list[str]:
    if done.cost is None:
        return []
    said = [f"The sidecar held at most {done.cost.peak_rss_bytes / 1e6:.1f} MB."]
    if done.cost.stage_difference_ms is not None:
        said.append(
            f"The sum of its stages and its TTFT differ by {done.cost.stage_difference_ms:.2g} ms a request."
        )
    if done.cost.unseen_ms is not None:
        said.append(f"Mean TTFT of the clients less that of the sidecar: {done.cost.unseen_ms:.2f} ms.")
    return [" ".join(said), ""]


def _all(*values: float | None) -> str:
    return " / ".join(pieces.UNKNOWN if value is None else f"{value:.2f}" for value in values)
