"""The pairs of flags and the two rules, as data, as Markdown and as a picture."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_runtime.bench import pairs, pieces, plot, report, result, summary


@dataclass(frozen=True)
class Measured:
    """A run of `bench pairs`."""

    result: result.Result
    wanted: tuple[pairs.Pair, ...]
    changed: Mapping[str, tuple[int, int]]
    """Rule -> answers that were not the same cold and on a hit, of so many; in batch-invariant mode."""

    @property
    def verdicts(self) -> list[pairs.Verdict]:
        return pairs.judge(self.result.rounds, self.wanted)


def document(done: Measured) -> dict[str, Any]:
    return result.document(done.result) | {
        "noise": pairs.noise(done.result.rounds),
        "pairs": [dataclasses.asdict(one) | {"is_slower": one.is_slower} for one in done.verdicts],
        "rules": {
            name: {"changed": changed, "asked": asked} for name, (changed, asked) in done.changed.items()
        },
    }


def markdown(done: Measured) -> str:
    whole, verdicts = done.result, done.verdicts
    slower = [one.pair.name for one in verdicts if one.is_slower]
    unmeasured = len(done.wanted) - len(verdicts)
    said = f"{len(slower)} of {len(verdicts)} pairs are slower than their better part"
    said += f": {', '.join(slower)}." if slower else "."
    parts = [
        f"# {whole.experiment.title}",
        "",
        *report.warnings(whole),
        f"**{said}** Noise: {pairs.noise(whole.rounds):.1%} (P95 of what a repeat differs from its median); "
        f"a pair may take {1 + 2 * pairs.noise(whole.rounds):.3f} of its better part's time."
        + (f" {unmeasured} pairs were not measured." if unmeasured else ""),
        "",
        _pairs(verdicts),
        "",
        "## Each alone",
        "",
        _alone(whole),
        "",
        "## The published rule beside ours",
        "",
        _rules(done),
        *pieces.errors(whole.rounds),
        "",
        "## Notes",
        "",
        *(f"- {note}" for note in whole.experiment.notes),
        *pieces.measured_on(whole.context),
    ]
    return "\n".join(parts) + "\n"


def _pairs(verdicts: Sequence[pairs.Verdict]) -> str:
    rows = [
        (
            one.pair.name,
            one.best_part,
            f"{one.ratio:.3f}",
            f"{one.lowest:.3f} to {one.highest:.3f}",
            "**slower**" if one.is_slower else "no",
        )
        for one in sorted(verdicts, key=lambda one: -one.ratio)
    ]
    return pieces.table(("pair", "better part", "its time by the part's", "single repeats", "slower"), rows)


def _alone(whole: result.Result) -> str:
    base = pairs.durations(whole.rounds, pairs.BASE)
    rows = []
    for variant in whole.experiment.variants:
        found = pairs.durations(whole.rounds, variant.name)
        if variant.name in pairs.RULES or " + " in variant.name or not found:
            continue
        middle = statistics.median(found.values())
        by_base = f"{middle / statistics.median(base.values()):.3f}" if base else pieces.UNKNOWN
        figures = summary.figures(whole.of(variant.name))
        rows.append((variant.name, f"{middle:.2f}", by_base, pieces.milliseconds(figures.ttft_p95_s)))
    return pieces.table(("flag", "median time, s", "by the base's", "TTFT P95 ms"), rows)


def _rules(done: Measured) -> str:
    rows = []
    for name in pairs.RULES:
        rounds = done.result.of(name)
        if not rounds:
            continue
        figures, found = summary.figures(rounds), pairs.durations(rounds, name)
        changed = done.changed.get(name)
        computed = figures.computed_tokens
        rows.append(
            (
                name,
                f"{statistics.median(found.values()):.2f}" if found else pieces.UNKNOWN,
                " / ".join(pieces.milliseconds(one) for one in (figures.ttft_p50_s, figures.ttft_p95_s)),
                pieces.UNKNOWN if computed is None else f"{computed:.0f}",
                f"{changed[0]} of {changed[1]}" if changed else pieces.UNKNOWN,
            )
        )
    head = (
        *("rule", "median time, s", "TTFT P50 / P95 ms", "prompt tokens computed, mean"),
        "answers that differ, cold and found (batch-invariant)",
    )
    return pieces.table(head, rows)


def draw(done: Measured, path: Path) -> None:
    """Time of each pair by that of its better part."""
    verdicts = sorted(done.verdicts, key=lambda one: one.ratio)
    spans = [plot.Span(one.pair.name, one.ratio, one.lowest, one.highest) for one in verdicts]
    allowed = verdicts[0].allowed if verdicts else None
    title = f"{done.result.experiment.title}\n{plot.under(done.result.context)}"
    plot.spans(path, spans, title, "time by that of the better part; below 1 the pair is faster", allowed)
