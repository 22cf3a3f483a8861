"""Switches under load, as data, as Markdown and as a picture."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_runtime.bench import bars, pieces, plot, switch
from firsttoken_runtime.bench.result import Context


@dataclass(frozen=True)
class Measured:
    """A run of `bench switch`."""

    plan: switch.Plan
    switches: tuple[switch.Switch, ...]
    streams: tuple[switch.Streams, ...]
    context: Context
    ended: str = ""
    """Why it ended before its last repeat; else empty."""

    @property
    def errors(self) -> int:
        return sum(one.failed for one in self.streams)

    @property
    def verdicts(self) -> list[bars.Verdict]:
        return switch.judge(self.switches, self.streams)


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "switch",
        "is_complete": not done.ended,
        "ended": done.ended,
        "context": dataclasses.asdict(done.context),
        "server": dataclasses.asdict(done.plan.server),
        "bars": [bars.document(one) for one in done.verdicts],
        "switches": [dataclasses.asdict(one) | {"bound_s": one.bound_s} for one in done.switches],
        "streams": [dataclasses.asdict(one) for one in done.streams],
    }


def markdown(done: Measured) -> str:
    said = [*pieces.load_warnings(done.context), *pieces.ended_warning(done.ended)]
    errors = [error for one in done.streams for error in one.errors]
    parts = [
        f"# {title(done)}",
        "",
        *([*said, ""] if said else []),
        "## Bars",
        "",
        pieces.verdicts(done.verdicts),
        "",
        "## Switches",
        "",
        _switches(done),
        "",
        "- pause: from sending the flags to the answer that they are in force, a step that is under way "
        "included; the next step is of the new layout. The engine's own begins when it takes the flags",
        "- recomputed: prompt tokens and pieces of text of the streams that ran; what was cached or is "
        "computed for two at once makes the true number smaller",
        f"- bound: {switch.GAP_FACTOR} x recomputed / prefill rate; the rate is that of prompts of "
        f"{switch.RATE_TOKENS} tokens alone, under the flags that were put, in this run",
        *(f"- failed: {error}" for error in errors),
        *pieces.measured_on(done.context),
    ]
    return "\n".join(parts) + "\n"


def title(done: Measured) -> str:
    return f"Hot switch between {done.plan.before.name} and {done.plan.after.name}: {switch.STREAMS} streams"


def _switches(done: Measured) -> str:
    rows = [
        (
            f"{one.name}, repeat {one.repeat + 1}",
            str(one.running),
            " / ".join(pieces.milliseconds(value) for value in (one.pause_s, one.engine_pause_s)),
            str(one.recomputed_tokens),
            f"{one.prefill_tokens_per_s:.0f}",
            " / ".join(
                pieces.milliseconds(value)
                for value in (min(one.gaps_s, default=None), max(one.gaps_s, default=None))
            ),
            pieces.milliseconds(one.engine_gap_s),
            pieces.milliseconds(one.bound_s),
        )
        for one in done.switches
    ]
    head = (
        *("switch", "streams", "pause ms / engine's", "recomputed tokens", "prefill tok/s"),
        *("gap of streams, shortest / longest ms", "engine's longest gap ms", "bound ms"),
    )
    return pieces.table(head, rows)


def draw(done: Measured, path: Path) -> None:
    """The longest gap of each switch by its bound."""
    spans = [
        plot.Span(
            f"{one.name}, repeat {one.repeat + 1}",
            max(one.gaps_s) / one.bound_s,
            min(one.gaps_s) / one.bound_s,
            max(one.gaps_s) / one.bound_s,
        )
        for one in done.switches
        if one.gaps_s and one.bound_s
    ]
    plot.spans(path, spans, f"{title(done)}\n{plot.under(done.context)}", "gaps of streams by the bound", 1.0)
