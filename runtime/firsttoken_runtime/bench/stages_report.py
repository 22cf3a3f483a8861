"""Where the time to the first token went, as data and as Markdown. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import ending, pieces, stages
from firsttoken_runtime.bench.result import Context, errors_of

TITLE = "Where the time to the first token goes"


@dataclass(frozen=True)
class Measured:
    """A run of `bench stages`."""

    samples: tuple[stages.Sample, ...]
    context: Context
    ended: str = ""
    """Why it ended before its last round; else empty."""
    through_sidecar: bool = False

    @property
    def server(self) -> str:
        """Whom the client asked."""
        return stages.server(self.through_sidecar)

    @property
    def errors(self) -> int:
        return errors_of([one.round for one in self.samples])

    @property
    def is_complete(self) -> bool:
        return not self.ended and all(one.round.is_complete for one in self.samples)

    def figures(self) -> dict[str, stages.Figures]:
        """Of the loads that have any."""
        loads = stages.loads(self.through_sidecar)
        found = {load: stages.figures(stages.of(self.samples, load)) for load in loads}
        return {load: one for load, one in found.items() if one is not None}

    def verdicts(self) -> list[stages.Verdict]:
        return stages.judge(self.samples, self.through_sidecar)


def flat(done: Measured) -> dict[str, float | int | bool | str | None]:
    """For scripts: of the client that asks alone."""
    one = done.figures().get(stages.ALONE)
    return {
        "server": done.server,
        "stages_minus_ttft_most_ms": one.largest_difference_ms if one else None,
        "client_minus_server_p50_ms": one.unseen.p50_ms if one else None,
        "client_minus_server_p99_ms": one.unseen.p99_ms if one else None,
        "client_core_others_most": max((each.client_core_load for each in done.samples), default=None),
        "requests": one.requests if one else 0,
        "errors": done.errors,
        "is_complete": done.is_complete,
    }


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "stages",
        "server": done.server,
        "prompt_tokens": list(stages.PROMPT_TOKENS),
        "output_tokens": stages.OUTPUT_TOKENS,
        "is_complete": done.is_complete,
        "context": dataclasses.asdict(done.context),
        "loads": {load: dataclasses.asdict(one) for load, one in done.figures().items()},
        "bars": [dataclasses.asdict(one) | {"is_reached": one.is_reached} for one in done.verdicts()],
        "samples": [dataclasses.asdict(one) for one in done.samples],
    }


def markdown(done: Measured) -> str:
    low, high = stages.PROMPT_TOKENS
    title = f"{TITLE} through a sidecar" if done.through_sidecar else TITLE
    parts = [
        f"# {title}: prompts of {low} to {high} tokens, {stages.OUTPUT_TOKENS} out",
        "",
        *_warnings(done),
        _spreads(done.figures(), done.server),
        "",
        f"Milliseconds. Means of the stages add up to that of the {done.server}'s TTFT; percentiles do not.",
        "",
        "## Bars",
        "",
        _verdicts(done.verdicts()),
        *pieces.errors([one.round for one in done.samples]),
        *pieces.measured_on(done.context),
    ]
    return "\n".join(parts) + "\n"


def _warnings(done: Measured) -> list[str]:
    said = pieces.load_warnings(done.context)
    if done.errors:
        said.append(f"**{done.errors} requests failed**; they are in no figure.")
    if not done.is_complete:
        said += pieces.ended_warning(done.ended or ending.TIME_UP)
    for whose, loads in (
        ("client", [one.client_core_load for one in done.samples]),
        ("server", [one.server_core_load for one in done.samples]),
    ):
        if (busiest := max(loads, default=0.0)) > stages.IDLE:
            said.append(f"**Others used up to {busiest:.0%} of the {whose}'s core** during a round.")
    return [*said, ""] if said else []


def _spreads(found: dict[str, stages.Figures], server: str) -> str:
    names = dict.fromkeys(name for one in found.values() for name in one.stages)
    rows = [(name, *_cells([one.stages.get(name) for one in found.values()])) for name in names]
    rows += [
        (f"**TTFT, {server}**", *_cells([one.server for one in found.values()])),
        ("TTFT, client", *_cells([one.client for one in found.values()])),
        (f"client minus {server}", *_cells([one.unseen for one in found.values()])),
    ]
    heads = (f"{load} ({one.requests} requests): mean / P50 / P99" for load, one in found.items())
    return pieces.table(("stage", *heads), rows)


def _cells(spreads: Sequence[stages.Spread | None]) -> list[str]:
    return [
        " / ".join(f"{value:.2f}" for value in (one.mean_ms, one.p50_ms, one.p99_ms))
        if one
        else pieces.UNKNOWN
        for one in spreads
    ]


def _verdicts(judged: Sequence[stages.Verdict]) -> str:
    rows = []
    for one in judged:
        reached = {True: "yes", False: "**no**", None: "not measured"}[one.is_reached]
        spread = (
            f"{min(one.singles_ms):.3g} to {max(one.singles_ms):.3g}" if one.singles_ms else pieces.UNKNOWN
        )
        rows.append(
            (
                one.load,
                one.text,
                f"at most {one.at_most_ms:.3g}",
                pieces.UNKNOWN if one.value_ms is None else f"{one.value_ms:.3g}",
                spread,
                f"not judged: {one.not_judged}" if one.not_judged else reached,
            )
        )
    return pieces.table(("load", "bar", "limit, ms", "measured", "single repeats", "reached"), rows)
