"""From an experiment to its files: starts the server, runs the rounds, says what was measured on what."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiohttp
from rich.console import Console

from firsttoken_runtime.bench import client, experiment, machine, result, rounds, server, show, summary

T = TypeVar("T")


@dataclass(frozen=True)
class Wish:
    """What the command line asked for, the same for every experiment."""

    source: Path
    out: Path | None
    repeats: int
    seed: int
    time_limit_s: float
    threads: str
    dtype: str
    device: str

    def server_options(self, needs: experiment.ServerNeeds) -> list[str]:
        own = ["--threads", self.threads, "--dtype", self.dtype, "--device", self.device]
        return [*own, *needs.options()]


async def run(wanted: experiment.Experiment, wish: Wish) -> result.Result:
    """Raises UserError where the server does not start or refuses what is asked of it."""

    async def only_one(conductor: "Conductor") -> result.Result:
        return await conductor.run(wanted)

    return await with_server(wanted.name, wanted.server, wish, only_one)


class Conductor:
    """A running server, for one experiment or several after each other."""

    def __init__(
        self,
        wish: Wish,
        target: server.Target,
        http: aiohttp.ClientSession,
        console: Console,
        folder: Path,
        sha256: str,
        load_before: tuple[float, float, float],
    ) -> None:
        self._wish = wish
        self._target = target
        self._http = http
        self._console = console
        self._folder = folder
        self._sha256 = sha256
        self._load_before = load_before

    async def rounds(
        self, wanted: experiment.Experiment, repeats: int, time_limit_s: float
    ) -> list[summary.Round]:
        with show.progress(self._console, repeats * len(wanted.variants)) as report:
            return await rounds.run(
                wanted,
                self._target,
                self._http,
                repeats=repeats,
                time_limit_s=time_limit_s,
                report=report,
            )

    async def run(self, wanted: experiment.Experiment) -> result.Result:
        wish = self._wish
        state = await server.Ops(self._http, self._target.ops_url).state()
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        done = await self.rounds(wanted, wish.repeats, wish.time_limit_s)
        context = result.Context(
            machine=machine.look(),
            command=machine.command(),
            started_at=started_at,
            load_before=self._load_before,
            load_after=machine.load_average(),
            model=wish.source.name,
            model_sha256=self._sha256,
            device=state["device"],
            dtype=state["dtype"],
            server_command=list(self._target.command),
            seed=wish.seed,
            repeats=wish.repeats,
        )
        finished = result.Result(wanted, tuple(done), context)
        show.write(finished, self._folder, self._console)
        return finished


async def with_server(
    name: str,
    needs: experiment.ServerNeeds,
    wish: Wish,
    use: Callable[[Conductor], Awaitable[T]],
) -> T:
    """Starts the server that all of `use` runs on, and ends it."""
    folder = show.folder(wish.out, name)
    console = Console(highlight=False)
    # Before the server loads its model, which is work too.
    load_before = machine.load_average()
    async with AsyncExitStack() as stack:
        log = folder / "server.log"
        console.print(f"Starting the server (its log: {log})", soft_wrap=True)
        target = await stack.enter_async_context(
            server.serving(str(wish.source), wish.server_options(needs), folder / "server.log")
        )
        http = await stack.enter_async_context(client.session())
        sha256 = await asyncio.to_thread(machine.digest, wish.source)
        return await use(Conductor(wish, target, http, console, folder, sha256, load_before))


def check(done: Sequence[result.Result]) -> Collection[str]:
    """Why the run does not count: requests that failed, rounds that were cut off. Bars are not among them."""
    reasons = []
    for one in done:
        if failed := result.errors_of(one.rounds):
            reasons.append(f"{failed} requests failed")
        if not one.is_complete:
            reasons.append("the time was up before the load was through")
    return reasons
