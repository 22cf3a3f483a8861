"""The picture beside the table: TTFT, TPOT, throughput and KV memory use of each variant; and values with
their spread beside a limit, for runs of another shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot
from matplotlib.axes import Axes

from firsttoken_runtime.bench import summary
from firsttoken_runtime.bench.result import Context, Result

COLORS = ("#9ecae1", "#4292c6", "#08519c")
LATER = "#08519c"
Series = dict[str, list[float | None]]


def draw(result: Result, path: Path) -> None:
    """Writes a PNG or SVG, by the name of the file."""
    names = [variant.name for variant in result.experiment.variants]
    group = _group_of_bars(result)
    figures = [summary.figures(result.of(name), _group(result.of(name), group)) for name in names]
    whole = [summary.figures(result.of(name)) for name in names]
    of_group = f" ({group})" if group else ""
    has_kv = any(one.kv_use is not None for one in whole)
    figure, axes = pyplot.subplots(1, 4 if has_kv else 3, figsize=(17 if has_kv else 13, 4.4))
    _bars(
        axes[0],
        names,
        {
            "P50": [_ms(one.ttft_p50_s) for one in figures],
            "P90": [_ms(one.ttft_p90_s) for one in figures],
            "P99": [_ms(one.ttft_p99_s) for one in figures],
        },
        f"Time to first token{of_group}, ms",
    )
    _bars(
        axes[1],
        names,
        {
            "P50": [_ms(one.tpot_p50_s) for one in figures],
            "P95": [_ms(one.tpot_p95_s) for one in figures],
        },
        f"Time per output token{of_group}, ms",
    )
    _bars(axes[2], names, {"": [one.requests_per_s for one in whole]}, "Requests per second (all)")
    if has_kv:
        use = {
            "use": [_hundredths(one.kv_use) for one in whole],
            "waste": [_hundredths(one.kv_waste) for one in whole],
        }
        _bars(axes[3], names, use, "KV memory while requests wait, %")
        axes[3].set_ylim(0, 115)
    figure.suptitle(f"{result.experiment.title}\n{_under(result)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _group_of_bars(result: Result) -> str | None:
    """The group whose latency the bars are about; None = all requests."""
    return next((bar.group for bar in result.experiment.bars if bar.group), None)


def _group(rounds: Sequence[summary.Round], wanted: str | None) -> str | None:
    """That group, or all where a variant's load has none of it."""
    return wanted if wanted in summary.groups(rounds) else None


def _bars(axes: Axes, names: Sequence[str], series: Series, title: str) -> None:
    width = 0.8 / len(series)
    for index, (label, values) in enumerate(series.items()):
        places = [place - 0.4 + width * (index + 0.5) for place in range(len(names))]
        heights = [0.0 if value is None else value for value in values]
        color = COLORS[index] if len(series) > 1 else LATER
        drawn = axes.bar(places, heights, width * 0.94, label=label or None, color=color)
        axes.bar_label(drawn, [_label(value) for value in values], fontsize=6, padding=1)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.2)
    if len(series) > 1:
        axes.legend(fontsize=7, frameon=False, loc="upper center", ncols=len(series))


def _label(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Span:
    """One value, and those of single repeats."""

    name: str
    value: float
    lowest: float | None = None
    highest: float | None = None


def spans(path: Path, found: Sequence[Span], title: str, unit: str, limit: float | None = None) -> None:
    """One row for each; a dashed line at the limit. Writes a PNG or SVG, by the name of the file."""
    figure, axes = pyplot.subplots(figsize=(9, 1.6 + 0.34 * max(1, len(found))))
    for place, one in enumerate(reversed(found)):
        is_over = limit is not None and one.value > limit
        if one.lowest is not None and one.highest is not None:
            axes.plot([one.lowest, one.highest], [place, place], color=COLORS[0], linewidth=5)
        axes.plot([one.value], [place], "o", color="#cb181d" if is_over else LATER)
        axes.annotate(_label(one.value), (one.value, place), (6, 5), textcoords="offset points", fontsize=7)
    axes.set_yticks(range(len(found)), [one.name for one in reversed(found)], fontsize=8)
    if limit is not None:
        axes.axvline(limit, color="#cb181d", linestyle="--", linewidth=1)
    axes.set_xlabel(unit, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12, y=0.12)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def under(context: Context) -> str:
    """The second line of a title: what it was measured on."""
    return f"{context.model}, {context.dtype}, {context.machine.processor}, repeats: {context.repeats}"


def _under(result: Result) -> str:
    errors = sum(summary.figures(result.of(one.name)).errors for one in result.experiment.variants)
    failed = f", {errors} requests failed" if errors else ""
    return f"{under(result.context)}{failed}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _hundredths(share: float | None) -> float | None:
    return None if share is None else share * 100
