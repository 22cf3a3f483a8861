"""The mean stages of the time to the first token as stacked bars, one for each load."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot
from matplotlib.axes import Axes

from firsttoken_runtime.bench import stages, stages_report

COLORS = (
    *("#c6dbef", "#fdae6b", "#6baed6", "#74c476", "#9e9ac8", "#d9d9d9"),
    *("#fdd0a2", "#c7e9c0", "#dadaeb", "#636363", "#fcbba1"),
)
LEAST_SHARE = 0.07
"""Of a bar. A shorter part has its figure in the legend only."""


def draw(done: stages_report.Measured, path: Path) -> None:
    """Writes a PNG or SVG, by the name of the file. A load without answers has no bar."""
    found = done.figures()
    figure, panels = pyplot.subplots(
        max(1, len(found)), 1, figsize=(10, 1.2 + 1.9 * max(1, len(found))), squeeze=False
    )
    for axes, (load, one) in zip(panels[:, 0], found.items(), strict=False):
        _bar(axes, load, one, f"client minus {done.server}")
    context = done.context
    figure.suptitle(
        f"{stages_report.TITLE}, means\n{context.model}, {context.dtype}, {context.machine.processor}",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bar(axes: Axes, load: str, one: stages.Figures, rest: str) -> None:
    parts = {name: spread.mean_ms for name, spread in one.stages.items()} | {rest: one.unseen.mean_ms}
    start_ms = 0.0
    for index, (name, mean_ms) in enumerate(parts.items()):
        # The client may see the text before the server has noted that it wrote it.
        width_ms = max(0.0, mean_ms)
        drawn = axes.barh(
            [0], [width_ms], left=start_ms, color=COLORS[index % len(COLORS)], label=f"{name} {mean_ms:.2f}"
        )
        if width_ms > LEAST_SHARE * one.client.mean_ms:
            axes.bar_label(drawn, [f"{name}\n{mean_ms:.3g}"], label_type="center", fontsize=7)
        start_ms += width_ms
    axes.set_yticks([])
    axes.set_xlim(0, start_ms * 1.01)
    axes.set_title(
        f"{load}: {one.requests} requests, mean TTFT {one.client.mean_ms:.1f} ms at the client", fontsize=9
    )
    axes.set_xlabel("ms", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(
        fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.32), ncols=min(7, len(parts))
    )
