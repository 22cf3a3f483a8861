"""TTFT of every request over the time of its arrival, a panel for each phase."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot
from matplotlib.axes import Axes

from firsttoken_runtime.bench import overload, overload_report, plot

COLORS = {overload.INTERACTIVE: "#cb181d", overload.BATCH: "#4292c6"}


def draw(done: overload_report.Measured, path: Path) -> None:
    """Writes a PNG or SVG, by the name of the file."""
    count = max(1, len(done.phases))
    figure, panels = pyplot.subplots(count, 1, figsize=(10, 1.2 + 2.1 * count), squeeze=False, sharex=True)
    for axes, (name, phase) in zip(panels[:, 0], done.phases.items(), strict=False):
        _panel(axes, done, name, phase)
    figure.suptitle(f"{overload_report.TITLE}: TTFT of each request\n{plot.under(done.context)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axes: Axes, done: overload_report.Measured, name: str, phase: overload.Phase) -> None:
    for request_class, color in COLORS.items():
        own = [one for one in phase.attempts if one.request_class == request_class and not one.is_refused]
        seen = [(one.due_s, one.record.ttft_s) for one in own if one.record.ttft_s is not None]
        axes.plot(
            [due_s for due_s, _ in seen],
            [ttft_s for _, ttft_s in seen],
            ".",
            color=color,
            markersize=3,
            label=f"{request_class}, {len(own)} let in",
        )
        axes.axhline(done.limits.of(request_class), color=color, linestyle="--", linewidth=1)
    refused = [one.due_s for one in phase.attempts if one.is_refused]
    axes.plot(
        refused, [0.0] * len(refused), "|", color="#969696", markersize=5, label=f"{len(refused)} refused"
    )
    axes.set_title(f"{name}: {phase.rate_per_s:.2f} requests a second", fontsize=9)
    axes.set_ylabel("TTFT, s", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left", ncols=3)
