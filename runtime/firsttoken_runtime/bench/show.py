"""A progress bar while rounds run, and the files that a result leaves."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import plot, report, result, rounds


@contextmanager
def progress(console: Console, total_rounds: int) -> Iterator[rounds.Report]:
    """One bar for the requests of the round that runs, one for the rounds."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=2) as bar:
        overall = bar.add_task("rounds", total=total_rounds)
        requests = bar.add_task("starting", total=None)
        started: list[tuple[str, int]] = []

        def report_progress(now: rounds.Progress) -> None:
            if (now.variant, now.repeat) not in started:
                started.append((now.variant, now.repeat))
                bar.update(overall, completed=len(started) - 1)
            bar.update(
                requests,
                description=f"{now.variant}, repeat {now.repeat + 1}",
                # A background lane makes more requests than were planned.
                total=max(now.total, now.done),
                completed=now.done,
            )

        yield report_progress
        bar.update(overall, completed=total_rounds)


def folder(wanted: Path | None, name: str) -> Path:
    """Where the files go; by default a new folder named by the time. Raises UserError."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = wanted or Path(f"bench-{name}-{now}")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {path}: {error.strerror}") from error
    return path


def write(done: result.Result, path: Path, console: Console) -> None:
    """result.json, table.md and plot.png; the table is printed too."""
    result.write(path / "result.json", result.document(done))
    text = report.markdown(done)
    (path / "table.md").write_text(text)
    plot.draw(done, path / "plot.png")
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        console.out(text, highlight=False)
    console.print(f"Written to {path}: result.json, table.md, plot.png", soft_wrap=True)
