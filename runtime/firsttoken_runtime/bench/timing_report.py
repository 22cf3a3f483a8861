"""What TTFTs tell of another tenant's prompts, as data, as Markdown and as a picture."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot

from firsttoken_runtime.bench import bars, pieces, plot, timing
from firsttoken_runtime.bench.result import Context

TITLE = "Can a tenant see by timing what another one has cached?"


@dataclass(frozen=True)
class Measured:
    """A run of `bench timing`."""

    samples: tuple[timing.Sample, ...]
    context: Context
    ended: str = ""
    """Why it ended before its last pair; else empty."""

    @property
    def verdicts(self) -> list[bars.Verdict]:
        return timing.judge(self.samples)

    @property
    def groups(self) -> dict[str, list[float]]:
        """TTFTs in seconds."""
        return {
            "cold": [one.cold_s for one in self.samples],
            "cached under another salt": [one.other_s for one in self.samples],
            "cached under its own salt": [one.hit_s for one in self.samples if one.hit_s is not None],
        }


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "timing",
        "is_complete": not done.ended,
        "ended": done.ended,
        "prompt_tokens": timing.PROMPT_TOKENS,
        "context": dataclasses.asdict(done.context),
        "auc_other_salt": timing.against_other(done.samples),
        "auc_own_hit": timing.against_hit(done.samples),
        "bars": [bars.document(one) for one in done.verdicts],
        "samples": [dataclasses.asdict(one) for one in done.samples],
    }


def markdown(done: Measured) -> str:
    said = [*pieces.load_warnings(done.context), *pieces.ended_warning(done.ended)]
    aucs = [timing.against_other(done.samples), timing.against_hit(done.samples)]
    shown = [pieces.UNKNOWN if one is None else f"{one:.3f}" for one in aucs]
    parts = [
        f"# {TITLE}",
        "",
        *([*said, ""] if said else []),
        f"AUC of cold against other salt: **{shown[0]}** (0.5: they cannot be told apart); against a hit of "
        f"its own: {shown[1]}.",
        "",
        "## Bars",
        "",
        pieces.verdicts(done.verdicts),
        "",
        "## Times to the first token",
        "",
        _times(done.groups),
        "",
        f"Prompts of {timing.PROMPT_TOKENS} tokens, one at a time; `single repeats` are every third pair.",
        *pieces.measured_on(done.context),
    ]
    return "\n".join(parts) + "\n"


def _times(groups: dict[str, list[float]]) -> str:
    rows = []
    for name, values in groups.items():
        middle = timing.median_ms(values)
        spread = f"{min(values) * 1e3:.1f} to {max(values) * 1e3:.1f}" if values else pieces.UNKNOWN
        rows.append((name, str(len(values)), pieces.UNKNOWN if middle is None else f"{middle:.1f}", spread))
    return pieces.table(("prompt", "requests", "median ms", "from, to ms"), rows)


def draw(done: Measured, path: Path) -> None:
    """The share of requests that were faster than a time."""
    figure, axes = pyplot.subplots(figsize=(8, 4.4))
    for (name, values), color in zip(done.groups.items(), ("#08519c", "#fd8d3c", "#74c476"), strict=True):
        if values:
            ordered, shares = _steps(values)
            axes.step(ordered, shares, where="post", label=f"{name} ({len(values)})", color=color)
    axes.set_xlabel("time to first token, ms", fontsize=8)
    axes.set_ylabel("share of requests", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if done.samples:
        axes.legend(fontsize=8, frameon=False)
    figure.suptitle(f"{TITLE}\n{plot.under(done.context)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _steps(values: Sequence[float]) -> tuple[list[float], list[float]]:
    ordered = sorted(values)
    return [value * 1e3 for value in ordered], [(place + 1) / len(ordered) for place in range(len(ordered))]
