"""Capacity and what lies beyond it, as data and as Markdown. Pure."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import bars, ending, overload, pieces
from firsttoken_runtime.bench.proportion import Proportion
from firsttoken_runtime.bench.result import Context

TITLE = "Overload"
LATE_MS = 20.0
"""A load generator that is later than this at P99 is said to be late."""
FIELDS = ("status", "answered_s", "retry_after_s", "ttft_ms", "p90_ms", "limit_ms")


@dataclass(frozen=True)
class Measured:
    """A run of `bench overload`."""

    phases: Mapping[str, overload.Phase]
    holds: tuple[overload.Phase, ...]
    limits: overload.Limits
    busy_per_s: float
    obeying: float
    interactive_share: float
    context: Context
    ended: str = ""
    """Why it ended before its last phase; else empty."""

    @property
    def is_complete(self) -> bool:
        return not self.ended

    @property
    def failed(self) -> int:
        """Requests that were neither accepted nor refused."""
        return sum(one.failed for one in self.figures().values())

    def figures(self) -> dict[str, overload.Figures]:
        return {name: overload.figures(phase, self.limits) for name, phase in self.phases.items()}

    def verdicts(self) -> list[bars.Verdict]:
        return overload.judge(self.phases, self.limits)


def flat(done: Measured) -> dict[str, float | int | bool | str | None]:
    """For scripts."""
    made = done.figures()
    values: dict[str, float | int | bool | str | None] = {
        "capacity_per_s": done.phases[overload.CAPACITY].rate_per_s
        if overload.CAPACITY in done.phases
        else None,
        "slo_s": done.limits.interactive_s,
        "is_complete": done.is_complete,
    }
    for key, name in (
        ("capacity", overload.CAPACITY),
        ("under", overload.UNDER),
        ("with", overload.WITH),
        ("without", overload.WITHOUT),
    ):
        if (one := made.get(name)) is None:
            continue
        values |= {
            f"{key}_accepted": one.accepted,
            f"{key}_refused": one.refused,
            f"{key}_goodput_per_s": one.goodput_per_s,
            f"{key}_refusal_p99_ms": one.refusal_p99_ms,
            f"{key}_retries_accepted": one.retries_accepted,
            f"{key}_near_limit_breached": one.near_limit_breached,
        }
        for name_, each in one.classes.items():
            values[f"{key}_{name_}_ttft_p95_s"] = each.ttft_p95_s
            for what, of in _proportions(each).items():
                values |= {f"{key}_{name_}_{what}": of.part, f"{key}_{name_}_{what}_of": of.whole}
    return values


def _proportions(one: overload.ClassFigures) -> dict[str, Proportion]:
    return {
        "in_time": one.in_time,
        "retries_accepted": one.retries_accepted,
        "near_limit_breached": one.near_limit_breached,
    }


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "overload",
        "is_complete": done.is_complete,
        "ended": done.ended,
        "context": dataclasses.asdict(done.context),
        "limits_s": {one.name: one.ttft_p99_s for one in done.limits.classes()} if done.phases else {},
        "busy_per_s": done.busy_per_s,
        "obeying": done.obeying,
        "interactive_share": done.interactive_share,
        "figures": {name: dataclasses.asdict(one) for name, one in done.figures().items()},
        "bars": [bars.document(one) for one in done.verdicts()],
        "holds": [_phase(one) for one in done.holds],
        "phases": {name: _phase(one) for name, one in done.phases.items()},
    }


def _phase(phase: overload.Phase) -> dict[str, Any]:
    """Its requests as rows: there are thousands."""
    head = ("class", "is_retry", "due_s", "sent_s", "end_s", "ttft_s", "prompt_tokens", "error", *FIELDS)
    rows = []
    for one in phase.attempts:
        record = one.record
        door = [getattr(record.door, name) if record.door else None for name in FIELDS]
        rows.append(
            [
                *(one.request_class, one.is_retry, one.due_s, one.sent_s, record.end_s, record.ttft_s),
                *(record.prompt_tokens, record.error, *door),
            ]
        )
    return {
        "name": phase.name,
        "rate_per_s": phase.rate_per_s,
        "duration_s": phase.duration_s,
        "planned": phase.planned,
        "is_cut": phase.is_cut,
        "client_cpu": phase.client_cpu,
        "columns": list(head),
        "requests": rows,
    }


def markdown(done: Measured) -> str:
    parts = [f"# {TITLE}: {overload.ABOVE:g} times the capacity", "", *_warnings(done)]
    if done.limits.interactive_s:
        parts += [
            f"TTFT limits: {overload.INTERACTIVE} {done.limits.of(overload.INTERACTIVE):.2f} s, "
            f"{overload.BATCH} {done.limits.of(overload.BATCH):.2f} s; "
            f"{done.interactive_share:.0%} of the requests are {overload.INTERACTIVE}. Of the clients that "
            f"are refused {done.obeying:.0%} come back, once, at their Retry-After.",
            "",
        ]
    parts += [_holds(done), "", _phases(done), "", _classes(done), "", _generator(done)]
    parts += ["", "## Bars", "", pieces.verdicts(done.verdicts())]
    parts += pieces.measured_on(done.context)
    return "\n".join(parts) + "\n"


def _warnings(done: Measured) -> list[str]:
    said = pieces.load_warnings(done.context)
    said += pieces.ended_warning(done.ended)
    if done.failed:
        said.append(f"**{done.failed} requests failed**: neither accepted nor refused.")
    late_ms = max((one.late_p99_ms or 0.0 for one in done.figures().values()), default=0.0)
    if late_ms > LATE_MS:
        said.append(f"**The client was late**: {late_ms:.0f} ms at P99 after a request was due.")
    return [*said, ""] if said else []


def _holds(done: Measured) -> str:
    rows = [
        (
            one.name,
            f"{one.rate_per_s:.2f}",
            str(one.planned),
            "no, cut short" if one.is_cut else _yes(overload.is_held(one.attempts, done.limits)),
        )
        for one in done.holds
    ]
    title = f"## Capacity\n\nAn engine that is never idle ends {done.busy_per_s:.2f} requests a second.\n\n"
    return title + pieces.table(("hold", "requests/s", "requests", "P95 holds"), rows)


def _phases(done: Measured) -> str:
    rows = []
    for name, one in done.figures().items():
        rows.append(
            (
                name,
                f"{done.phases[name].rate_per_s:.2f}",
                *(str(one.arrivals), str(one.accepted), str(one.refused), str(one.failed)),
                *(f"{one.goodput_per_s:.2f}", f"{one.good_tokens_per_s:.0f}"),
                _all(one.refusal_p50_ms, one.refusal_p99_ms),
                f"{pieces.percent(one.retries_accepted)} of {one.retries}",
                f"{pieces.percent(one.near_limit_breached)} of {one.near_limit}",
            )
        )
    head = (
        *(
            "phase",
            "requests/s",
            "arrivals",
            "accepted",
            "refused",
            "failed",
            "goodput/s",
            "its prompt tokens/s",
        ),
        *("429 P50 / P99 ms", "accepted at their Retry-After", "near the limit, breached"),
    )
    return "## Phases\n\n" + pieces.table(head, rows)


def _classes(done: Measured) -> str:
    rows = []
    for name, one in done.figures().items():
        for class_name, each in one.classes.items():
            rows.append(
                (
                    *(name, class_name, str(each.accepted), str(each.refused)),
                    _seconds(each.ttft_p50_s, each.ttft_p95_s, each.ttft_p99_s),
                    f"{done.limits.of(class_name):.2f}",
                    *(_proportion(of) for of in _proportions(each).values()),
                )
            )
    head = (
        *("phase", "class", "accepted", "refused", "TTFT P50 / P95 / P99 s", "limit s", "in time"),
        *("accepted at their Retry-After", "near the limit, breached"),
    )
    said = f"In parentheses: where the true share is, with 95 %. {overload.HELD:.0%} are to be in time."
    return f"## By class\n\n{said}\n\n" + pieces.table(head, rows)


def _generator(done: Measured) -> str:
    rows = [
        (name, _all(one.late_p99_ms, one.late_most_ms), f"{done.phases[name].client_cpu:.0%}")
        for name, one in done.figures().items()
    ]
    head = ("phase", "sent after it was due P99 / most ms", "CPU of the client")
    return "## The load generator\n\n" + pieces.table(head, rows)


def reasons(done: Measured) -> list[str]:
    """Why the run does not count."""
    return ending.reasons(done.failed, done.is_complete, done.ended)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _all(*values_ms: float | None) -> str:
    return " / ".join(pieces.UNKNOWN if value is None else f"{value:.1f}" for value in values_ms)


def _seconds(*values_s: float | None) -> str:
    return " / ".join(pieces.UNKNOWN if value is None else f"{value:.2f}" for value in values_s)


def _proportion(of: Proportion) -> str:
    """With its counts and its interval."""
    if of.interval is None:
        return pieces.UNKNOWN
    low, high = (pieces.percent(end) for end in of.interval)
    return f"{of.part} of {of.whole}: {pieces.percent(of.share)} ({low} to {high})"
