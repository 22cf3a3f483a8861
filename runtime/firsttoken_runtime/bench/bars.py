"""Bars against what was measured: over all rounds together, and the spread of single repeats. Pure."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import experiment, summary


@dataclass(frozen=True)
class Verdict:
    """One bar. None: it could not be measured."""

    bar: experiment.Limit
    value: float | None
    lowest: float | None = None
    highest: float | None = None
    """Of the repeats, each by itself."""

    @property
    def is_reached(self) -> bool | None:
        return None if self.value is None else self.bar.is_reached(self.value)


def of_values(bar: experiment.Limit, value: float | None, singles: Sequence[float] = ()) -> Verdict:
    """One whose value somebody else has worked out; `singles`: the same of each repeat."""
    return Verdict(bar, value, min(singles, default=None), max(singles, default=None))


def document(verdict: Verdict) -> dict[str, Any]:
    """JSON."""
    return dataclasses.asdict(verdict.bar) | {
        "value": verdict.value,
        "lowest": verdict.lowest,
        "highest": verdict.highest,
        "is_reached": verdict.is_reached,
    }


def judge(bars: Sequence[experiment.Bar], rounds: Sequence[summary.Round]) -> list[Verdict]:
    repeats = sorted({one.repeat for one in rounds})
    verdicts = []
    for bar in bars:
        singles = [_value(bar, [one for one in rounds if one.repeat == repeat]) for repeat in repeats]
        known = [single for single in singles if single is not None]
        verdicts.append(Verdict(bar, _value(bar, rounds), min(known, default=None), max(known, default=None)))
    return verdicts


def _value(bar: experiment.Bar, rounds: Sequence[summary.Round]) -> float | None:
    value = figure(rounds, bar.variant, bar.group, bar.figure)
    if not bar.against:
        return value
    base = figure(rounds, bar.against, bar.group, bar.figure)
    return value / base if value is not None and base else None


def figure(rounds: Sequence[summary.Round], variant: str, group: str | None, name: str) -> float | None:
    """One figure of one variant; None where it has no rounds or the figure is unknown."""
    chosen = [one for one in rounds if one.variant == variant]
    if not chosen:
        return None
    value: float | None = getattr(summary.figures(chosen, group), name)
    return value
