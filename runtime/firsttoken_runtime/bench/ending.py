"""How a run ends: by itself, when its time is up, or because somebody stops it.

Measuring takes minutes, so what was measured by then is written in every case. `until_ended` stands around
the measuring alone: what it had collected stays, and the program goes on to its report. Before and after
that SIGTERM and Ctrl-C end the program, and the servers that it started.
"""

import asyncio
import signal
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

import typer

T = TypeVar("T")

TIME_UP = "the time was up before the load was through"
STOPPED = "it was stopped before the load was through"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end. SIGTERM cancels it, as Ctrl-C does, so that the servers are ended too."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError as error:
        raise typer.Exit(128 + signal.SIGTERM) from error


async def until_ended(measuring: Coroutine[Any, Any, None], time_limit_s: float | None = None) -> str:
    """Why it ended early, or "". A second signal is not held back."""
    timeout = asyncio.timeout(time_limit_s)
    try:
        async with timeout:
            await measuring
    except TimeoutError:
        if not timeout.expired():
            raise
        return TIME_UP
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return STOPPED
    return ""


def leave(reasons: Collection[str]) -> None:
    """Says why the run does not count, with exit status 1; does nothing without a reason."""
    for reason in reasons:
        typer.echo(f"firsttoken bench: {reason}", err=True)
    if reasons:
        raise typer.Exit(1)


def reasons(errors: int, is_complete: bool, ended: str) -> list[str]:
    """Why a run does not count. Bars that are not reached are not among them."""
    found = [f"{errors} requests failed"] if errors else []
    return found if is_complete else [*found, ended or TIME_UP]
