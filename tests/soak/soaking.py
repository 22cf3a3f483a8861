"""A real sidecar beside a paced engine, held under many connections for minutes."""

import asyncio
import resource
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from yarl import URL

from firsttoken_runtime.bench import beside, child
from soak import clients, hostile, memory

ENGINE = (
    *("--max-num-seqs", "1000", "--chunk-tokens", "1000000", "--prefill-tokens-per-s", "1e6"),
    *("--fixed-ms", "250", "--decode-ms", "0"),
)
"""Each stream gets four tokens a second, however many there are."""
LOOK_S = 2.0
NEVER_S = 3600.0
OPEN_A_SECOND = 200.0
FILES = 8192
FILL_REQUESTS = 500
FILL_BYTES = 32_000
"""What sidecars remember of prompts is bounded. It is filled twice over before anything is judged: it is no
leak, and its tables have their last size only once they have been full."""
FILL_AT_ONCE = 50
HARMLESS = ("nothing happened", "200", "no connection")
"""How nobody who means harm may be answered."""


@dataclass(frozen=True)
class Plan:
    """How much, for how long."""

    seconds: float = 600.0
    idle: int = 1000
    active: int = 200
    slow: int = 10
    fill: int = FILL_REQUESTS


@dataclass
class Soaked:
    """What came of it."""

    samples: list[memory.Sample] = field(default_factory=list)
    counts: clients.Counts = field(default_factory=clients.Counts)
    cpu_s: float = 0.0

    def faults(self) -> list[str]:
        """Empty when all is well."""
        found = memory.faults(self.samples)
        if self.counts.failures:
            found.append(f"clients failed: {dict(self.counts.failures.most_common(5))}")
        if not self.counts.streams:
            found.append("no stream came to its end")
        found += [
            f"{name} ({count} times)"
            for name, count in self.counts.hostile.items()
            if name.rpartition(": ")[2] in HARMLESS
        ]
        return found


def raise_file_limit() -> None:
    """For this process and its children: both ends of every connection are on this machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))


async def run(plan: Plan, folder: Path, on_look: Callable[[memory.Sample, clients.Counts], None]) -> Soaked:
    """Raises UserError where a process does not start or ends."""
    raise_file_limit()
    soaked = Soaked()
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(beside.paced_engine(ENGINE, folder / "engine.log"))
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        document = beside.settings((), NEVER_S)
        sidecar = await stack.enter_async_context(
            beside.running(target, document, folder / "sidecar.log", http)
        )
        tasks: list[asyncio.Task[None]] = []
        stack.push_async_callback(_end, tasks)
        began_s = time.monotonic()
        opening = asyncio.create_task(_open(plan, sidecar.url, http, soaked.counts, tasks))
        tasks.append(opening)
        while (at_s := time.monotonic() - began_s) < plan.seconds:
            sample = memory.look(sidecar.pid, at_s)
            soaked.samples.append(sample)
            on_look(sample, soaked.counts)
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(min(LOOK_S, plan.seconds / 10))
        soaked.cpu_s = child.cpu_seconds(sidecar.pid)
    return soaked


async def _open(
    plan: Plan,
    url: str,
    http: aiohttp.ClientSession,
    counts: clients.Counts,
    tasks: list[asyncio.Task[None]],
) -> None:
    """One connection after the other: a thousand at once would only test the listening queue."""
    await _fill(plan.fill, url, http)
    place = URL(url)
    assert place.host is not None
    assert place.port is not None
    for number in range(max(plan.idle, plan.active)):
        if number < plan.active:
            tasks.append(asyncio.create_task(clients.stream_for_ever(http, url, number, counts)))
        if number < plan.idle:
            tasks.append(asyncio.create_task(clients.idle_for_ever(place.host, place.port, counts)))
        await asyncio.sleep(1 / OPEN_A_SECOND)
    for attack in (hostile.header_bombs, hostile.nonsense):
        tasks.append(asyncio.create_task(attack(place.host, place.port, counts)))
    for _ in range(plan.slow):
        for attack in (hostile.slow_head, hostile.slow_body):
            tasks.append(asyncio.create_task(attack(place.host, place.port, counts)))


async def _fill(count: int, url: str, http: aiohttp.ClientSession) -> None:
    numbers = iter(range(count))

    async def ask() -> None:
        for number in numbers:
            text = f"{number} " * (FILL_BYTES // len(f"{number} "))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
            async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()

    await asyncio.gather(*(ask() for _ in range(FILL_AT_ONCE)))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
