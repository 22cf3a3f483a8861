"""A result as Markdown: figures, change, the reference, the bars, what went wrong, the machine. Pure."""

from firsttoken_runtime.bench import ending, pieces, reference, summary
from firsttoken_runtime.bench.result import Result

HEAD = ("TTFT P50 / P90 / P95 / P99 ms", "TPOT P50 / P95 ms", "req/s", "output tok/s", "errors")
KV_HEAD = ("KV memory use", "internal waste", "preemptions")


def markdown(result: Result) -> str:
    parts = [f"# {result.experiment.title}", "", *warnings(result), _figures(result)]
    parts += _change(result)
    parts += _reuse(result)
    if result.experiment.name == "table":
        parts += ["", "## Beside the reference figures", "", _beside_reference(result)]
    if result.experiment.bars:
        parts += ["", "## Bars", "", pieces.verdicts(result.verdicts)]
    parts += pieces.errors(result.rounds)
    if result.experiment.notes:
        parts += ["", "## Notes", "", *(f"- {note}" for note in result.experiment.notes)]
    parts += pieces.measured_on(result.context)
    return "\n".join(parts) + "\n"


def warnings(result: Result) -> list[str]:
    said = pieces.load_warnings(result.context)
    if cut := sorted({one.variant for one in result.rounds if not one.is_complete}):
        said.append(f"**Not complete**: {ending.TIME_UP} in {', '.join(cut)}.")
    said += pieces.ended_warning(result.ended)
    late_s = max((one.send_delay_s for one in result.rounds), default=0.0)
    if late_s > 0.1:
        said.append(f"**The client was late**: up to {late_s * 1e3:.0f} ms after a request was due.")
    return [*said, ""] if said else []


def _figures(result: Result) -> str:
    names = summary.groups(result.rounds)
    head = ("variant", *(("requests",) if names else ()), *HEAD, *KV_HEAD)
    rows = []
    for variant in result.experiment.variants:
        rounds = result.of(variant.name)
        everything = summary.figures(rounds)
        rows.append((variant.name, *(("all",) if names else ()), *_row(everything), *_kv(everything)))
        own = [name for name in names if name in summary.groups(rounds)]
        rows += [(variant.name, name, *_row(summary.figures(rounds, name)), "", "", "") for name in own]
    return pieces.table(head, rows)


def _row(one: summary.Figures) -> tuple[str, ...]:
    ttfts = (one.ttft_p50_s, one.ttft_p90_s, one.ttft_p95_s, one.ttft_p99_s)
    return (
        " / ".join(pieces.milliseconds(value) for value in ttfts),
        " / ".join(pieces.milliseconds(value) for value in (one.tpot_p50_s, one.tpot_p95_s)),
        f"{one.requests_per_s:.2f}",
        f"{one.output_tokens_per_s:.1f}",
        str(one.errors),
    )


def _kv(one: summary.Figures) -> tuple[str, str, str]:
    return (
        pieces.percent(one.kv_use),
        pieces.percent(one.kv_waste),
        pieces.UNKNOWN if one.preemptions is None else str(one.preemptions),
    )


def _change(result: Result) -> list[str]:
    """Each variant against its base, which is the first one unless it names another."""
    pairs_of = [(one, result.experiment.base_of(one)) for one in result.experiment.variants]
    changed = [(variant, base) for variant, base in pairs_of if variant is not base]
    if not changed:
        return []
    bases = list(dict.fromkeys(base.name for _, base in changed))
    rows = []
    for variant, base in changed:
        start, now = (summary.figures(result.of(one.name)) for one in (base, variant))
        pairs = (
            (now.ttft_p50_s, start.ttft_p50_s),
            (now.ttft_p90_s, start.ttft_p90_s),
            (now.ttft_p99_s, start.ttft_p99_s),
            (now.tpot_p95_s, start.tpot_p95_s),
            (now.requests_per_s, start.requests_per_s),
            (now.output_tokens_per_s, start.output_tokens_per_s),
        )
        name = variant.name if len(bases) == 1 else f"{variant.name} : {base.name}"
        rows.append((name, *(pieces.change(*pair) for pair in pairs)))
    head = ("variant", "TTFT P50", "TTFT P90", "TTFT P99", "TPOT P95", "req/s", "output tok/s")
    title = f"Change against {bases[0]}" if len(bases) == 1 else "Changes"
    return ["", f"## {title}", "", pieces.table(head, rows)]


def _reuse(result: Result) -> list[str]:
    """A section where a variant found anything in the cache, or could have."""
    if not any(one.reuse and one.reuse.looked_up for one in result.rounds):
        return []
    rows = []
    for variant in result.experiment.variants:
        rounds = result.of(variant.name)
        everything = summary.figures(rounds)
        counted = [one.reuse for one in rounds if one.reuse]
        tiers = dict.fromkeys(tier for one in counted for tier in one.found)
        found = ", ".join(f"{tier} {sum(one.found.get(tier, 0) for one in counted):.0f}" for tier in tiers)
        rows.append(
            (
                variant.name,
                f"{sum(one.prompt_tokens for round_ in rounds for one in round_.records)}",
                found or pieces.UNKNOWN,
                pieces.UNKNOWN if everything.computed_tokens is None else f"{everything.computed_tokens:.0f}",
                f"{everything.prompt_tokens_per_s:.0f}",
            )
        )
    head = (
        *("variant", "prompt tokens, all rounds", "found by tier (counter)"),
        *("computed of a prompt, mean (usage)", "prompt tok/s"),
    )
    return ["", "## Found in the cache", "", pieces.table(head, rows)]


def _beside_reference(result: Result) -> str:
    """Ours and theirs; what compares is the change against each one's own baseline."""
    base = summary.figures(result.of(result.experiment.variants[0].name))
    their_base = reference.STEPS[0]
    names = [variant.name for variant in result.experiment.variants]
    rows = []
    for name in dict.fromkeys([*names, *reference.BY_NAME]):
        ours = summary.figures(result.of(name)) if name in names else None
        theirs = reference.BY_NAME.get(name)
        cells: list[str] = []
        for figure in ("ttft_p50_s", "ttft_p99_s", "requests_per_s"):
            for one, start in ((ours, base), (theirs, their_base)):
                cells.append(
                    _with_change(
                        getattr(one, figure), getattr(start, figure), is_time=figure.startswith("ttft")
                    )
                    if one
                    else pieces.UNKNOWN
                )
        rows.append(
            (name, *cells, *(pieces.percent(one.kv_use) if one else pieces.UNKNOWN for one in (ours, theirs)))
        )
    head = (
        "step",
        *(
            f"{text}, {who}"
            for text in ("TTFT P50 ms", "TTFT P99 ms", "req/s")
            for who in ("ours", "reference")
        ),
        *("KV use, ours", "KV use, reference"),
    )
    return pieces.table(head, rows)


def _with_change(value: float | None, before: float | None, *, is_time: bool) -> str:
    if value is None:
        return pieces.UNKNOWN
    text = pieces.milliseconds(value) if is_time else f"{value:.2f}"
    return text if value == before else f"{text} ({pieces.change(value, before)})"
