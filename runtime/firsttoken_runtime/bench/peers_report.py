"""The comparison with vLLM as data and as Markdown. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import ending, peers, pieces
from firsttoken_runtime.bench.result import Context

BUSY = 0.05
"""Cores. Idle servers that use more disturb the one that is measured."""


@dataclass(frozen=True)
class Comparison:
    """A comparison that has been run."""

    dtypes: tuple[str, ...]
    samples: tuple[peers.Sample, ...]
    bandwidth_gb_s: float
    """Read by one core, in the same run."""
    context: Context
    ended: str = ""
    """Why it ended before its last round; else empty."""

    @property
    def errors(self) -> int:
        return sum(one.errors for one in self.samples)

    @property
    def is_complete(self) -> bool:
        return not self.ended and all(one.is_complete for one in self.samples)


def document(done: Comparison) -> dict[str, Any]:
    same, best = peers.ratios(done.samples, done.dtypes)
    return {
        "version": 1,
        "experiment": "peers",
        "is_complete": done.is_complete,
        "ended": done.ended,
        "prompt_tokens": peers.PROMPT_TOKENS,
        "output_tokens": peers.OUTPUT_TOKENS,
        "bandwidth_gb_s": done.bandwidth_gb_s,
        "context": dataclasses.asdict(done.context),
        "samples": [dataclasses.asdict(one) for one in done.samples],
        "same_dtype": [_ratio(one) for one in same],
        "best_dtype": [_ratio(one) for one in best],
    }


def _ratio(one: peers.Ratio) -> dict[str, Any]:
    return dataclasses.asdict(one) | {"is_reached": one.is_reached, "least": peers.LEAST_RATIO}


def markdown(done: Comparison) -> str:
    same, best = peers.ratios(done.samples, done.dtypes)
    parts = [
        f"# {peers.OURS} and {peers.THEIRS}: one core each, "
        f"{peers.PROMPT_TOKENS} tokens in, {peers.OUTPUT_TOKENS} out",
        "",
        *_warnings(done),
        _values(done),
        "",
        "## Ratios at the same number format (above 1: we are better)",
        "",
        _ratios(same),
        "",
        "## Ratios, each at its own best number format",
        "",
        _ratios(best),
        *pieces.measured_on(
            done.context,
            f"One core reads {done.bandwidth_gb_s:.1f} GB/s (measured in this run): a decode step for one "
            "client cannot be shorter than the bytes of the weights divided by that.",
        ),
    ]
    return "\n".join(parts) + "\n"


def _warnings(done: Comparison) -> list[str]:
    said = pieces.load_warnings(done.context)
    if done.errors:
        said.append(f"**{done.errors} requests failed**; they are in no figure.")
    if not done.is_complete:
        said += pieces.ended_warning(done.ended or ending.TIME_UP)
    busiest = max((one.idle_load for one in done.samples), default=0.0)
    if busiest > BUSY:
        said.append(f"**Idle servers used up to {busiest:.2f} cores** while another was measured.")
    return [*said, ""] if said else []


def _values(done: Comparison) -> str:
    engines = dict.fromkeys(one.engine for one in done.samples)
    rows = []
    for engine in engines:
        cells = []
        for measure in peers.MEASURES:
            value = peers.median(done.samples, engine, measure)
            single = [
                one.values[measure.name]
                for one in done.samples
                if one.engine == engine and measure.name in one.values
            ]
            cells.append(
                pieces.UNKNOWN if value is None else f"{value:.3g} ({min(single):.3g} to {max(single):.3g})"
            )
        rows.append((str(engine), *cells))
    return pieces.table(("engine", *(f"{one.name}, {one.unit}" for one in peers.MEASURES)), rows)


def _ratios(found: Sequence[peers.Ratio]) -> str:
    rows = []
    for one in found:
        reached = {True: "yes", False: "**no**"}[one.is_reached] if one.measure in peers.JUDGED else ""
        rows.append(
            (
                one.measure.name,
                f"{one.ours} : {one.theirs}",
                f"{one.ratio:.2f}",
                f"{one.lowest:.2f} to {one.highest:.2f}",
                reached,
            )
        )
    head = ("measure", "engines", "ratio", "single repeats", f"at least {peers.LEAST_RATIO}")
    return pieces.table(head, rows)
