"""TTFT P95 and hit rates of the loads of `bench routing`, a bar for each strategy."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot

from firsttoken_runtime.bench import plot, routing, routing_report

COLOR = "#08519c"


def draw(done: routing_report.Measured, path: Path) -> None:
    """Writes a PNG or SVG, by the name of the file."""
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for panel, load, title in (
        (axes[0], routing.SKEWED, "TTFT P95, ms"),
        (axes[1], routing.SHARED, "Hit rate, %"),
    ):
        own = [one for one in done.samples if one.load == load]
        names = [routing.NAMES.get(one.variant, one.variant) for one in own]
        made = [routing.figures(one) for one in own]
        is_time = load == routing.SKEWED
        values = [((one.ttft_p95_s or 0) * 1e3 if is_time else (one.hit_rate or 0) * 100) for one in made]
        drawn = panel.bar(range(len(own)), values, color=COLOR)
        panel.bar_label(drawn, [f"{value:.0f}" for value in values], fontsize=8, padding=1)
        panel.set_xticks(range(len(own)), names, fontsize=8)
        panel.set_title(f"{load}: {title}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(y=0.2)
    figure.suptitle(f"{routing_report.TITLE}\n{plot.under(done.context)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
