"""A result as Markdown: figures, change, the reference, the bars, what went wrong, the machine. Pure."""

from collections.abc import Sequence

from firsttoken_runtime.bench import bars, ending, reference, summary
from firsttoken_runtime.bench.result import Context, Result

UNKNOWN = "–"
HEAD = ("TTFT P50 / P90 / P95 / P99 ms", "TPOT P50 / P95 ms", "req/s", "output tok/s", "errors")
LOADED = 0.5
"""Load average over a minute. A machine that was left alone is far below."""
KV_HEAD = ("KV memory use", "internal waste", "preemptions")


def markdown(result: Result) -> str:
    parts = [f"# {result.experiment.title}", "", *warnings(result), _figures(result)]
    parts += _change(result)
    parts += _reuse(result)
    if result.experiment.name == "table":
        parts += ["", "## Beside the reference figures", "", _beside_reference(result)]
    if result.experiment.bars:
        parts += ["", "## Bars", "", verdicts(result.verdicts)]
    parts += errors(result.rounds)
    if result.experiment.notes:
        parts += ["", "## Notes", "", *(f"- {note}" for note in result.experiment.notes)]
    parts += ["", "## Measured on", "", machine(result.context)]
    return "\n".join(parts) + "\n"


def warnings(result: Result) -> list[str]:
    said = load_warnings(result.context)
    if cut := sorted({one.variant for one in result.rounds if not one.is_complete}):
        said.append(f"**Not complete**: {ending.TIME_UP} in {', '.join(cut)}.")
    said += ended_warning(result.ended)
    late_s = max((one.send_delay_s for one in result.rounds), default=0.0)
    if late_s > 0.1:
        said.append(f"**The client was late**: up to {late_s * 1e3:.0f} ms after a request was due.")
    return [*said, ""] if said else []


def ended_warning(ended: str) -> list[str]:
    """A line where the whole run ended early."""
    return [f"**Not complete**: {ended}."] if ended else []


def load_warnings(context: Context) -> list[str]:
    """A line where other work ran just before the run: nothing says that it had ended when the run began."""
    before = context.load_before[0]
    if before <= LOADED:
        return []
    return [
        f"**The machine was busy**: its load average over the minute before the run was {before:.2f}; "
        "figures may be too slow by an unknown factor."
    ]


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
    return table(head, rows)


def _row(one: summary.Figures) -> tuple[str, ...]:
    ttfts = (one.ttft_p50_s, one.ttft_p90_s, one.ttft_p95_s, one.ttft_p99_s)
    return (
        " / ".join(milliseconds(value) for value in ttfts),
        " / ".join(milliseconds(value) for value in (one.tpot_p50_s, one.tpot_p95_s)),
        f"{one.requests_per_s:.2f}",
        f"{one.output_tokens_per_s:.1f}",
        str(one.errors),
    )


def _kv(one: summary.Figures) -> tuple[str, str, str]:
    return (
        percent(one.kv_use),
        percent(one.kv_waste),
        UNKNOWN if one.preemptions is None else str(one.preemptions),
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
        rows.append((name, *(change(*pair) for pair in pairs)))
    head = ("variant", "TTFT P50", "TTFT P90", "TTFT P99", "TPOT P95", "req/s", "output tok/s")
    title = f"Change against {bases[0]}" if len(bases) == 1 else "Changes"
    return ["", f"## {title}", "", table(head, rows)]


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
                found or UNKNOWN,
                UNKNOWN if everything.computed_tokens is None else f"{everything.computed_tokens:.0f}",
                f"{everything.prompt_tokens_per_s:.0f}",
            )
        )
    head = (
        *("variant", "prompt tokens, all rounds", "found by tier (counter)"),
        *("computed of a prompt, mean (usage)", "prompt tok/s"),
    )
    return ["", "## Found in the cache", "", table(head, rows)]


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
                    else UNKNOWN
                )
        rows.append((name, *cells, *(percent(one.kv_use) if one else UNKNOWN for one in (ours, theirs))))
    head = (
        "step",
        *(
            f"{text}, {who}"
            for text in ("TTFT P50 ms", "TTFT P99 ms", "req/s")
            for who in ("ours", "reference")
        ),
        *("KV use, ours", "KV use, reference"),
    )
    return table(head, rows)


def _with_change(value: float | None, before: float | None, *, is_time: bool) -> str:
    if value is None:
        return UNKNOWN
    text = milliseconds(value) if is_time else f"{value:.2f}"
    return text if value == before else f"{text} ({change(value, before)})"


def verdicts(judged: Sequence[bars.Verdict]) -> str:
    rows = []
    for one in judged:
        limit = f"at most {number(one.bar.at_most)}" if one.bar.at_most is not None else ""
        limit = limit or f"at least {number(one.bar.at_least)}"
        spread = UNKNOWN
        if one.lowest is not None and one.highest is not None:
            spread = f"{number(one.lowest)} to {number(one.highest)}"
        reached = {True: "yes", False: "**no**", None: "not measured"}[one.is_reached]
        rows.append((one.bar.text, limit, number(one.value), spread, reached))
    return table(("bar", "limit", "measured", "single repeats", "reached"), rows)


def errors(rounds: Sequence[summary.Round]) -> list[str]:
    """A section, or nothing when no request failed."""
    found: list[tuple[str, str, str]] = []
    for variant in dict.fromkeys(one.variant for one in rounds):
        counts = summary.errors([one for one in rounds if one.variant == variant])
        found += [(variant, str(count), error) for error, count in counts.items()]
    if not found:
        return []
    return ["", "## Requests that failed", "", table(("variant", "requests", "error"), found)]


def machine(context: Context) -> str:
    here = context.machine
    load = " / ".join(f"{one[0]:.2f}" for one in (context.load_before, context.load_after))
    rows = [
        ("processor", f"{here.processor}, {here.cores} cores, {', '.join(here.features)}"),
        ("memory", f"{here.memory_bytes / 2**30:.1f} GiB"),
        ("system", f"{here.system}, Python {here.python}"),
        ("load average before / after (1 min)", load),
        ("model", f"{context.model}, sha256 {context.model_sha256 or UNKNOWN}"),
        ("device and number format", f"{context.device}, {context.dtype}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in here.versions.items())),
        ("seed, repeats", f"{context.seed}, {context.repeats}"),
        ("started", context.started_at),
        ("command", f"`{' '.join(context.command)}`"),
        ("server", f"`{' '.join(context.server_command)}`"),
        *((name, str(value)) for name, value in context.extra.items()),
    ]
    return table(("what", "value"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; a pipe in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


def number(value: float | None) -> str:
    """Three digits, or all those of a whole one."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def change(now: float | None, before: float | None) -> str:
    """`-77 %`, from `before` to `now`."""
    return UNKNOWN if now is None or not before else f"{now / before - 1:+.0%}".replace("%", " %")
