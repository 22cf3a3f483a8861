"""A progress bar while rounds run, and the files that a result leaves."""

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def console() -> Console:
    return Console(highlight=False)


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
    """The files of an experiment."""
    document, text = result.document(done), report.markdown(done)
    leave(path, console, document, text, lambda file: plot.draw(done, file))


def leave(
    path: Path,
    console: Console,
    document: dict[str, Any],
    text: str,
    draw: Callable[[Path], None] | None = None,
) -> None:
    """result.json, table.md and, where there is something to draw, plot.png; the table is printed too."""
    result.write(path / "result.json", document)
    (path / "table.md").write_text(text)
    names = ["result.json", "table.md"]
    if draw is not None:
        draw(path / "plot.png")
        names.append("plot.png")
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        console.out(text, highlight=False)
    console.print(f"Written to {path}: {', '.join(names)}", soft_wrap=True)
