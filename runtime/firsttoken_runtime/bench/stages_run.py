"""Starts the one server of `bench stages` on its core, asks from another, writes what came of it."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    beginning,
    child,
    client,
    ending,
    experiment,
    machine,
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
    console = show.console()
    began = beginning.Beginning.now()
    sha256 = await asyncio.to_thread(machine.digest, wish.source)
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
            samples: list[stages.Sample] = []
            ended = await ending.until_ended(measure(wish, target, http, report, samples))
    done = stages_report.Measured(
        samples=tuple(samples),
        context=began.context(
            model=wish.source.name,
            sha256=sha256,
            device=f"{state['device']}, core {wish.server_core}; client on core {wish.client_core}",
            dtype=state["dtype"],
            server_command=target.command,
            seed=wish.seed,
            repeats=wish.repeats,
            extra={"flags": ", ".join(state["flags"]["enabled"]) or "none"},
        ),
        ended=ended,
    )
    document, text = stages_report.document(done), stages_report.markdown(done)
    show.leave(folder, console, document, text, lambda file: stages_plot.draw(done, file))
    return done


async def measure(
    wish: Wish,
    target: server.Target,
    http: aiohttp.ClientSession,
    report: rounds.Report,
    samples: list[stages.Sample],
) -> None:
    """The loads in turn, every repeat in the opposite order; each round is appended to `samples` when it is
    over. Raises UserError if a first request fails."""
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
