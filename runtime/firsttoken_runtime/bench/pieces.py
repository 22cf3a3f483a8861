"""The pieces that all reports are made of: tables, figures, verdicts, warnings, the machine. Pure."""

from collections.abc import Sequence

from firsttoken_runtime.bench import bars, summary
from firsttoken_runtime.bench.result import Context

UNKNOWN = "–"
LOADED = 0.5
"""Load average over a minute. A machine that was left alone is far below."""


def load_warnings(context: Context) -> list[str]:
    """A line where other work ran just before the run: nothing says that it had ended when the run began."""
    before = context.load_before[0]
    if before <= LOADED:
        return []
    return [
        f"**The machine was busy**: its load average over the minute before the run was {before:.2f}; "
        "figures may be too slow by an unknown factor."
    ]


def ended_warning(ended: str) -> list[str]:
    """A line where the whole run ended early."""
    return [f"**Not complete**: {ended}."] if ended else []


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


def measured_on(context: Context, *before: str) -> list[str]:
    """The section that ends every report. `before`: what is said of the machine above its table."""
    parts = ["", "## Measured on"]
    for paragraph in (*before, machine(context)):
        parts += ["", paragraph]
    return parts


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
