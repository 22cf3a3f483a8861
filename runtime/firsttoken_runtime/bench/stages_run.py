"""Starts the one server of `bench stages` on its core, asks from another, writes what came of it."""

import asyncio
import datetime
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    child,
    client,
    experiment,
    machine,
    result,
    rounds,
    server,
    show,
    stages,
    stages_plot,
    stages_report,
)

NEEDS = experiment.ServerNeeds(max_model_len=512, kv_tokens=8 * 512)


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    source: Path
    out: Path | None
    requests: int
    repeats: int
    seed: int
    time_limit_s: float
    server_core: int
    client_core: int
    dtype: str
    token_ids: range


async def run(wish: Wish) -> stages_report.Measured:
    """Raises UserError where the server does not start. Leaves this process on the client's core."""
    folder = show.folder(wish.out, "stages")
    console = Console(highlight=False)
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    load_before = machine.load_average()
    sha256 = await asyncio.to_thread(machine.digest, wish.source)
    here = machine.look()  # before this process is held to one core
    async with AsyncExitStack() as stack:
        log = folder / "server.log"
        console.print(f"Starting the server (its log: {log})", soft_wrap=True)
        options = ["--threads", "1", "--dtype", wish.dtype, "--device", "cpu", *NEEDS.options()]
        target = await stack.enter_async_context(
            server.serving(str(wish.source), options, log, (wish.server_core,))
        )
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        state = await server.Ops(http, target.ops_url).state()
        with show.progress(console, wish.repeats * len(stages.LOADS)) as report:
            samples = await measure(wish, target, http, report)
    done = stages_report.Measured(
        samples=tuple(samples),
        context=result.Context(
            machine=here,
            command=machine.command(),
            started_at=started_at,
            load_before=load_before,
            load_after=machine.load_average(),
            model=wish.source.name,
            model_sha256=sha256,
            device=f"{state['device']}, core {wish.server_core}; client on core {wish.client_core}",
            dtype=state["dtype"],
            server_command=list(target.command),
            seed=wish.seed,
            repeats=wish.repeats,
            extra={"flags": ", ".join(state["flags"]["enabled"]) or "none"},
        ),
    )
    _write(done, folder, console)
    return done


async def measure(
    wish: Wish, target: server.Target, http: aiohttp.ClientSession, report: rounds.Report
) -> list[stages.Sample]:
    """The loads in turn, every repeat in the opposite order. Raises UserError if a first request fails."""
    ops = server.Ops(http, target.ops_url)
    asking = client.Client(http, target.url, await client.model_name(http, target.url), wants_timing=True)
    deadline_s = time.monotonic() + wish.time_limit_s
    plan = list(rounds.order(list(stages.LOADS), wish.repeats))
    for load in stages.LOADS:
        first = stages.lane(wish.seed, -1, load, stages.LOADS[load], wish.token_ids)
        warm = await rounds.drive(asking, first, deadline_s, 1)
        for record in warm.records:
            if record.error:
                raise UserError(f"a first request failed: {record.error}")
    samples = []
    for index, (repeat, load) in enumerate(plan):
        await ops.until_idle(rounds.IDLE_LIMIT_S)
        done = 0

        def count(load: str = load, repeat: int = repeat) -> None:
            nonlocal done
            done += 1
            report(rounds.Progress(load, repeat, done, wish.requests))

        report(rounds.Progress(load, repeat, 0, wish.requests))
        lane = stages.lane(wish.seed, repeat, load, wish.requests, wish.token_ids)
        before = _Use.now(wish, target)
        made = await rounds.drive(
            asking, lane, deadline_s, len(plan) - index, variant=load, repeat=repeat, on_done=count
        )
        samples.append(stages.Sample(made, *_Use.now(wish, target).since(before)))
    return samples


@dataclass(frozen=True)
class _Use:
    """Of the two cores, by processes other than the two that belong there. Seconds."""

    at_s: float
    client_core_s: float
    server_core_s: float

    @staticmethod
    def now(wish: Wish, target: server.Target) -> "_Use":
        own_s = 0.0 if target.pid is None else child.cpu_seconds(target.pid)
        return _Use(
            at_s=time.monotonic(),
            client_core_s=machine.busy_seconds(wish.client_core) - time.process_time(),
            server_core_s=machine.busy_seconds(wish.server_core) - own_s,
        )

    def since(self, before: "_Use") -> tuple[float, float]:
        """Cores: (of the client's, of the server's). The kernel counts in ticks: never below 0."""
        elapsed_s = self.at_s - before.at_s
        return (
            max(0.0, self.client_core_s - before.client_core_s) / elapsed_s,
            max(0.0, self.server_core_s - before.server_core_s) / elapsed_s,
        )


def _write(done: stages_report.Measured, folder: Path, console: Console) -> None:
    result.write(folder / "result.json", stages_report.document(done))
    text = stages_report.markdown(done)
    (folder / "table.md").write_text(text)
    stages_plot.draw(done, folder / "plot.png")
    console.out(text, highlight=False)
    console.print(f"Written to {folder}: result.json, table.md, plot.png", soft_wrap=True)
