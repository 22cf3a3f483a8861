"""Starts the one server of `bench stages` on its core, and a sidecar beside it if it is asked for; asks from
another core, writes what came of it.
"""

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
    beside,
    client,
    ending,
    experiment,
    gateway,
    machine,
    others,
    rounds,
    server,
    show,
    sidecar_meter,
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
    sidecar_core: int | None = None
    """None: straight to the server."""
    json_file: Path | None = None

    @property
    def through_sidecar(self) -> bool:
        return self.sidecar_core is not None

    @property
    def loads(self) -> dict[str, int]:
        return stages.loads(self.through_sidecar)

    def cores(self) -> str:
        beside_it = f"; sidecar on core {self.sidecar_core}" if self.through_sidecar else ""
        return f"core {self.server_core}{beside_it}; client on core {self.client_core}"


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
        if wish.through_sidecar:
            options.append("--behind-sidecar")
        target = await stack.enter_async_context(
            server.serving(str(wish.source), options, log, (wish.server_core,))
        )
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        state = await server.Ops(http, target.ops_url).state()
        running = None
        if wish.sidecar_core is not None:
            document = beside.settings(beside.enabled_flags(state), experiment.NEVER_S)
            cores = (wish.sidecar_core,)
            running = await stack.enter_async_context(
                beside.running(target, document, folder / "sidecar.log", http, cores=cores)
            )
        with show.progress(console, wish.repeats * len(wish.loads)) as report:
            samples: list[stages.Sample] = []
            ended = await ending.until_ended(measure(wish, target, http, report, samples, running))
    done = stages_report.Measured(
        samples=tuple(samples),
        context=began.context(
            model=wish.source.name,
            sha256=sha256,
            device=f"{state['device']}, {wish.cores()}",
            dtype=state["dtype"],
            server_command=target.command,
            seed=wish.seed,
            repeats=wish.repeats,
            extra={"flags": ", ".join(state["flags"]["enabled"]) or "none"},
        ),
        ended=ended,
        through_sidecar=wish.through_sidecar,
    )
    whole, text = stages_report.document(done), stages_report.markdown(done)
    show.leave(folder, console, whole, text, lambda file: stages_plot.draw(done, file))
    gateway.leave_flat(wish.json_file, stages_report.flat(done))
    return done


async def measure(
    wish: Wish,
    target: server.Target,
    http: aiohttp.ClientSession,
    report: rounds.Report,
    samples: list[stages.Sample],
    running: beside.Sidecar | None = None,
) -> None:
    """The loads in turn, every repeat in the opposite order; each round is appended to `samples` when it is
    over. `running`: the sidecar to ask through. Raises UserError if a first request fails."""
    ops = server.Ops(http, target.ops_url)
    asking = await _client(http, target, running)
    deadline_s = time.monotonic() + wish.time_limit_s
    plan = list(rounds.order(list(wish.loads), wish.repeats))
    for load, clients in wish.loads.items():
        first = stages.lane(wish.seed, -1, load, clients, wish.token_ids)
        warm = await rounds.drive(asking, first, deadline_s, 1)
        for record in warm.records:
            if record.error:
                raise UserError(f"a first request failed: {record.error}")
    belonging = _belonging(wish, target, running)
    for index, (repeat, load) in enumerate(plan):
        await ops.until_idle(rounds.IDLE_LIMIT_S)
        done = 0

        def count(load: str = load, repeat: int = repeat) -> None:
            nonlocal done
            done += 1
            report(rounds.Progress(load, repeat, done, wish.requests))

        report(rounds.Progress(load, repeat, 0, wish.requests))
        lane = stages.lane(wish.seed, repeat, load, wish.requests, wish.token_ids)
        before = others.use(belonging)
        made = await rounds.drive(
            asking, lane, deadline_s, len(plan) - index, variant=load, repeat=repeat, on_done=count
        )
        used = others.use(belonging).since(before)
        samples.append(stages.Sample(made, used[str(wish.client_core)], used[str(wish.server_core)]))


async def _client(
    http: aiohttp.ClientSession, target: server.Target, running: beside.Sidecar | None
) -> client.Client:
    if running is None:
        return client.Client(http, target.url, await client.model_name(http, target.url), wants_timing=True)
    return await sidecar_meter.Client.of(http, running, await client.model_name(http, running.url))


def _belonging(wish: Wish, target: server.Target, running: beside.Sidecar | None) -> dict[int, list[int]]:
    """Core -> the processes that are held to it."""
    held = [(wish.server_core, target.pid), (wish.client_core, os.getpid())]
    if running is not None and wish.sidecar_core is not None:
        held.append((wish.sidecar_core, running.pid))
    belonging: dict[int, list[int]] = {core: [] for core, _ in held}
    for core, pid in held:
        if pid is not None:
            belonging[core].append(pid)
    return belonging
