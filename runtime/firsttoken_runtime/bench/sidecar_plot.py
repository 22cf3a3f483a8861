"""The way between client and engine, direct and through the sidecar, as distributions."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot

from firsttoken_runtime.bench import plot, sidecar, sidecar_report

COLORS = {"direct": "#9ecae1", "through": "#08519c"}


def draw(done: sidecar_report.Measured, path: Path) -> None:
    """Writes a PNG or SVG, by the name of the file."""
    figure, axes = pyplot.subplots(figsize=(9, 4.4))
    for way in sidecar.WAYS:
        values = sorted(sidecar.ways_ms(sidecar.of(done.samples, way), done.streams))
        shares = [(index + 1) / len(values) for index in range(len(values))]
        axes.plot(values, shares, color=COLORS[way], label=f"{way} ({len(values)} requests)")
    axes.axhline(0.99, color="#636363", linestyle=":", linewidth=1)
    axes.set_xlabel("TTFT of the client less that of the engine, ms", fontsize=8)
    axes.set_ylabel("share of the requests", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    figure.suptitle(
        f"{sidecar_report.TITLE}: {done.streams} streams at once\n{plot.under(done.context)}", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
