"""Quantized KV: bytes, likelihoods and layers, as data, as Markdown and as a picture."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display: the bench writes files
from matplotlib import pyplot

from firsttoken_runtime.bench import bars, kv, pieces, plot, reference
from firsttoken_runtime.bench.result import Context

TITLE = "Quantized KV: what it saves, and what it changes"


@dataclass(frozen=True)
class Measured:
    """A run of `bench kv`."""

    passages: tuple[kv.Passage, ...]
    bytes_of: Mapping[str, kv.Bytes]
    """By KV type, as all mappings here."""
    layers: Mapping[str, Sequence[kv.Layer]]
    passage_tokens: int
    source: str
    """Of the passages."""
    context: Context
    ended: str = ""
    """Why it ended before its last passage; else empty."""

    @property
    def verdicts(self) -> list[bars.Verdict]:
        return kv.judge(self.passages, self.bytes_of, self.layers)


def document(done: Measured) -> dict[str, Any]:
    return {
        "version": 1,
        "experiment": "kv",
        "is_complete": not done.ended,
        "ended": done.ended,
        "context": dataclasses.asdict(done.context),
        "source": done.source,
        "passage_tokens": done.passage_tokens,
        "bars": [bars.document(one) for one in done.verdicts],
        "bytes": {kv_type: dataclasses.asdict(one) for kv_type, one in done.bytes_of.items()},
        "perplexity": {kv_type: kv.perplexity(done.passages, kv_type) for kv_type in kv.TYPES},
        "layers": {
            kv_type: [dataclasses.asdict(one) for one in found] for kv_type, found in done.layers.items()
        },
        "passages": [dataclasses.asdict(one) for one in done.passages],
    }


def markdown(done: Measured) -> str:
    said = [*pieces.load_warnings(done.context), *pieces.ended_warning(done.ended)]
    parts = [
        f"# {TITLE}",
        "",
        *([*said, ""] if said else []),
        "## Bars",
        "",
        pieces.verdicts(done.verdicts),
        "",
        "## Types",
        "",
        _types(done),
        "",
        *(f"- {one.sentence}" for one in done.bytes_of.values()),
        f"- the pool of the sentences: {kv.POOL_SEQUENCES} sequences of the model's context in 16 bit",
        f"- {len(done.passages)} passages of {done.passage_tokens} tokens: {done.source}; `full` keeps keys "
        f"and values in the compute format, {done.context.dtype}; `single repeats` of the perplexity are "
        f"every {kv.PARTS}th passage",
        f"- reference figures: {reference.INT8_SAYS}",
        "",
        "## Layers",
        "",
        _layers(done.layers),
        "",
        "Of each (query, head) the largest change of an attention probability over all keys: mean / 99.9th "
        "percentile / largest; relative L2 of the attention output. Layers not listed are in 16 bit.",
        *pieces.measured_on(done.context),
    ]
    return "\n".join(parts) + "\n"


def _types(done: Measured) -> str:
    rows = []
    for kv_type in kv.TYPES:
        sizes, perplexity = done.bytes_of.get(kv_type), kv.perplexity(done.passages, kv_type)
        change = kv.change(done.passages, kv_type)
        rows.append(
            (
                kv_type,
                f"{sizes.token_bytes:,} ({sizes.factor - 1:+.1%})" if sizes else pieces.UNKNOWN,
                f"{sizes.capacity:.2f}" if sizes else pieces.UNKNOWN,
                f"{sizes.pool_tokens:,}" if sizes else pieces.UNKNOWN,
                pieces.UNKNOWN if perplexity is None else f"{perplexity:.4f}",
                pieces.UNKNOWN if change is None else f"{change:+.3%}",
            )
        )
    head = (
        *("KV type", "bytes of a private token (against 16 bit)", "capacity against 16 bit"),
        *("tokens in this run's pool", "perplexity", "change"),
    )
    return pieces.table(head, rows)


def _layers(layers: Mapping[str, Sequence[kv.Layer]]) -> str:
    indices = sorted({layer.index for found in layers.values() for layer in found})
    by_index = {kv_type: {layer.index: layer for layer in found} for kv_type, found in layers.items()}
    rows = []
    for index in indices:
        cells = []
        for found in by_index.values():
            one = found.get(index)
            cells += (
                [f"{one.mean:.4f} / {one.p999:.3f} / {one.largest:.3f}", f"{one.relative_l2:.4f}"]
                if one
                else [pieces.UNKNOWN] * 2
            )
        rows.append((str(index), *cells))
    heads = [head for kv_type in layers for head in (f"{kv_type}: change", f"{kv_type}: relative L2")]
    return pieces.table(("layer", *heads), rows)


def draw(done: Measured, path: Path) -> None:
    """Mean deviation of each layer beside the limit, and how the perplexity of each passage changes."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.4))
    for (kv_type, found), color in zip(done.layers.items(), ("#08519c", "#fd8d3c"), strict=False):
        left.plot([one.index for one in found], [one.mean for one in found], "o-", label=kv_type, color=color)
    left.axhline(reference.INT8_DEVIATION, color="#cb181d", linestyle="--", linewidth=1)
    left.set_title("Mean deviation of attention by layer, and the limit of int8", fontsize=9)
    left.set_xlabel("layer", fontsize=8)
    for kv_type, color in zip(kv.QUANTIZED, ("#08519c", "#fd8d3c"), strict=True):
        changes = sorted(100 * (kv.change([one], kv_type) or 0.0) for one in done.passages)
        right.plot(range(len(changes)), changes, label=kv_type, color=color)
    right.axhline(0, color="#999999", linewidth=1)
    right.set_title("Change of the perplexity, %, of each passage, in order", fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8, frameon=False)
    figure.suptitle(f"{TITLE}\n{plot.under(done.context)}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
