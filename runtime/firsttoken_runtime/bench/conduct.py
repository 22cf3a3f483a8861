"""From an experiment to its files: starts the server, runs the rounds, says what was measured on what."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from rich.console import Console

from firsttoken_runtime.bench import (
    beginning,
    client,
    ending,
    experiment,
    machine,
    result,
    rounds,
    server,
    show,
)

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
        began: beginning.Beginning,
    ) -> None:
        self.wish = wish
        self.target = target
        self.http = http
        self.console = console
        self.folder = folder
        self._sha256 = sha256
        self._began = began

    async def rounds(self, wanted: experiment.Experiment, repeats: int, time_limit_s: float) -> rounds.Done:
        with show.progress(self.console, repeats * len(wanted.variants)) as report:
            return await rounds.run(
                wanted,
                self.target,
                self.http,
                repeats=repeats,
                time_limit_s=time_limit_s,
                report=report,
            )

    async def run(self, wanted: experiment.Experiment) -> result.Result:
        state = await self.state()
        done = await self.rounds(wanted, self.wish.repeats, self.wish.time_limit_s)
        finished = result.Result(wanted, tuple(done.rounds), self.context(state), done.ended)
        show.write(finished, self.folder, self.console)
        return finished

    async def state(self) -> dict[str, Any]:
        return await server.Ops(self.http, self.target.ops_url).state()

    def context(self, state: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> result.Context:
        """`state`: what the server said of itself; read it before the measuring, which may end in any way."""
        return self._began.context(
            model=self.wish.source.name,
            sha256=self._sha256,
            device=state["device"],
            dtype=state["dtype"],
            seed=self.wish.seed,
            repeats=self.wish.repeats,
            server_command=self.target.command,
            extra=extra,
        )


async def with_server(
    name: str,
    needs: experiment.ServerNeeds,
    wish: Wish,
    use: Callable[[Conductor], Awaitable[T]],
    *,
    log_name: str = "server.log",
) -> T:
    """Starts the server that all of `use` runs on, and ends it."""
    folder = show.folder(wish.out, name)
    console = show.console()
    # Before the server loads its model, which is work too.
    began = beginning.Beginning.now()
    async with AsyncExitStack() as stack:
        log = folder / log_name
        console.print(f"Starting the server (its log: {log})", soft_wrap=True)
        target = await stack.enter_async_context(
            server.serving(str(wish.source), wish.server_options(needs), log)
        )
        http = await stack.enter_async_context(client.session())
        sha256 = await asyncio.to_thread(machine.digest, wish.source)
        return await use(Conductor(wish, target, http, console, folder, sha256, began))


def reasons(done: result.Result) -> list[str]:
    """Why the run does not count: requests that failed, rounds that were cut off. Bars are not among them."""
    return ending.reasons(result.errors_of(done.rounds), done.is_complete, done.ended)
