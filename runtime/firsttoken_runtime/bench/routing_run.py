"""Starts four paced engines and four sidecars, sends the loads of `bench routing`, writes what came of it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from firsttoken_runtime.bench import (
    beginning,
    beside,
    client,
    ending,
    gateway,
    load,
    paced_server,
    rounds,
    routing,
    routing_plot,
    routing_report,
    server,
    show,
    summary,
    workload,
)

GRACE_S = 30.0
SETTLE_S = 1.5
"""For the sidecars to have seen each other."""
NEVER_S = 3600.0
PLAN = (
    (routing.SKEWED, routing.TURNS),
    (routing.SKEWED, routing.LEAST),
    (routing.SKEWED, routing.PREFIX),
    (routing.SHARED, routing.SINGLE),
    (routing.SHARED, routing.TURNS),
    (routing.SHARED, routing.PREFIX),
    (routing.KILL, routing.PREFIX),
)


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    out: Path | None
    json_file: Path | None
    seed: int
    duration_s: float
    time_limit_s: float


async def run(wish: Wish) -> routing_report.Measured:
    """Raises UserError where a process does not start."""
    folder = show.folder(wish.out, "routing")
    console = show.console()
    began = beginning.Beginning.now()
    samples: list[routing.Sample] = []
    console.print(f"Starting engines and sidecars (their logs: {folder})", soft_wrap=True)
    async with client.session() as http:
        with show.progress(console, len(PLAN)) as report:
            work = _measure(wish, folder, http, report, samples)
            ended = await ending.until_ended(work, wish.time_limit_s)
    done = routing_report.Measured(
        samples=tuple(samples),
        duration_s=wish.duration_s,
        context=began.context(
            model="paced (no real engine)",
            sha256="",
            device=f"none, {routing.ENGINES} engines and sidecars, not held to cores",
            dtype="none",
            seed=wish.seed,
            repeats=1,
        ),
        ended=ended,
    )
    document, text = routing_report.document(done), routing_report.markdown(done)
    show.leave(folder, console, document, text, lambda file: routing_plot.draw(done, file))
    gateway.leave_flat(wish.json_file, routing_report.flat(done))
    return done


async def _measure(
    wish: Wish,
    folder: Path,
    http: aiohttp.ClientSession,
    report: rounds.Report,
    samples: list[routing.Sample],
) -> None:
    """Each sample is appended when it is over. Engines and sidecars are new ones for each."""
    for index, (name, variant) in enumerate(PLAN):
        count = 1 if variant == routing.SINGLE else routing.ENGINES
        async with _cluster(folder, http, f"{index}", variant, count) as cluster:
            await asyncio.sleep(SETTLE_S)
            samples.append(await _Sending(wish, cluster, http, name, variant, report).run())


@dataclass
class _Cluster:
    engines: list[server.Target]
    sidecars: list[beside.Sidecar]


@contextlib.asynccontextmanager
async def _cluster(
    folder: Path, http: aiohttp.ClientSession, label: str, variant: str, count: int
) -> AsyncIterator[_Cluster]:
    hosts = routing.HOSTS[:count]
    ports = beside.free_ports(routing.HOSTS, 2)
    options = ["--prefill-tokens-per-s", str(routing.PREFILL_TOKENS_PER_S)]
    document = beside.settings(paced_server.ENABLED, NEVER_S)
    async with AsyncExitStack() as stack:
        engines, sidecars = [], []
        for index in range(count):
            log = folder / f"engine-{label}-{index}.log"
            engines.append(await stack.enter_async_context(beside.paced_engine(options, log)))
        for index, host in enumerate(hosts):
            changes = {
                "POD_IP": host,
                "PEERS_HOST": ",".join(hosts) if count > 1 else "",
                "ROUTING_STRATEGY": variant if variant != routing.SINGLE else routing.TURNS,
            }
            log = folder / f"sidecar-{label}-{index}.log"
            sidecar = beside.running(
                engines[index], document, log, http, host=host, ports=(ports[0], ports[1]), changes=changes
            )
            sidecars.append(await stack.enter_async_context(sidecar))
        yield _Cluster(engines, sidecars)


@dataclass
class _Sending:
    wish: Wish
    cluster: _Cluster
    http: aiohttp.ClientSession
    name: str
    variant: str
    report: rounds.Report
    late_most_s: float = 0.0
    records: list[summary.Record] = field(default_factory=list)

    async def run(self) -> routing.Sample:
        seed, duration_s = self.wish.seed, self.wish.duration_s
        is_shared = self.name == routing.SHARED
        requests = (routing.shared if is_shared else routing.skewed)(seed, duration_s)
        if self.variant == routing.SINGLE:
            requests = [replace(one, arrival_s=(one.arrival_s or 0.0) * routing.STRETCH) for one in requests]
            duration_s *= routing.STRETCH
        clients = await self._clients()
        before = await self._states()
        killing = asyncio.create_task(self._kill(routing.KILLED_AT * duration_s))
        tasks = set()
        for index, request in enumerate(requests):
            assert request.arrival_s is not None
            await asyncio.sleep(max(0.0, request.arrival_s - clients[0].now_s()))
            self.late_most_s = max(self.late_most_s, clients[0].now_s() - request.arrival_s)
            asking = self._ask(clients[index % len(clients)], request, len(requests))
            tasks.add(asyncio.create_task(asking))
        _, late = await asyncio.wait(tasks, timeout=GRACE_S)
        for task in (*late, killing):
            task.cancel()
        await asyncio.gather(*late, killing, return_exceptions=True)
        after = await self._states()
        looked_up, found = (
            [_count(now, key) - _count(then, key) for then, now in zip(before, after, strict=True)]
            for key in ("query_tokens_total", "hit_tokens_total")
        )
        return routing.Sample(
            load=self.name,
            variant=self.variant,
            records=tuple(self.records),
            duration_s=duration_s,
            cached=routing.Cached(sum(looked_up), sum(found)),
            late_most_s=self.late_most_s,
            lost_s=await self._lost_s(),
            engines_used=tuple(looked_up),
        )

    async def _clients(self) -> list[client.Client]:
        model = await client.model_name(self.http, self.cluster.sidecars[0].url)
        clients = [client.Client(self.http, one.url, model, notes_door=True) for one in self.cluster.sidecars]
        for one in clients:
            one.started_at_s = clients[0].started_at_s
        return clients

    async def _ask(self, asking: client.Client, request: workload.Request, total: int) -> None:
        try:
            record = await asking.ask(request, request.arrival_s)
        except asyncio.CancelledError:
            at_s = request.arrival_s or 0.0
            record = summary.Record(
                request.group, request.prompt_tokens, 0, at_s, asking.now_s(), error=load.NOT_IN_TIME
            )
        self.records.append(record)
        name = routing.NAMES.get(self.variant, self.variant)
        self.report(rounds.Progress(f"{self.name}, {name}", 0, len(self.records), total))

    async def _kill(self, after_s: float) -> None:
        if self.name != routing.KILL:
            return
        await asyncio.sleep(after_s)
        pid = self.cluster.engines[routing.KILLED].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def _states(self) -> list[dict[str, Any]]:
        """Of the engines; an empty one for what does not answer."""
        states: list[dict[str, Any]] = []
        for one in self.cluster.engines:
            try:
                async with self.http.get(f"{one.ops_url}/state") as response:
                    states.append((await response.json())["cache"])
            except aiohttp.ClientError:
                states.append({})
        return states

    async def _lost_s(self) -> float:
        lost_s = 0.0
        for one in self.cluster.engines:
            with contextlib.suppress(aiohttp.ClientError):
                samples = await server.Ops(self.http, one.ops_url).samples()
                lost_s += samples["paced_engine_lost_seconds"]
        return lost_s


def _count(cache: dict[str, Any], key: str) -> int:
    value = cache.get(key, 0)
    return sum(value.values()) if isinstance(value, dict) else int(value)
