"""What a sidecar says of single requests: what its metrics have grown by with each. So requests come one by
one, nothing is asked for in them, and what is held against the client's clock is what operators read.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from firsttoken_api import metrics
from firsttoken_runtime.bench import beside, summary, workload
from firsttoken_runtime.bench import client as bench_client

TTFT = metrics.SIDECAR_TTFT.name
STAGES = metrics.SIDECAR_TTFT_STAGE.name
LOOK_LIMIT_S = 5.0
"""A client can have its whole answer before the sidecar has counted it."""
LOOK_EVERY_S = 0.005


@dataclass(frozen=True)
class Counted:
    """Since the sidecar's start."""

    requests: int
    explained: Mapping[str, int]
    """Requests by stage."""
    ttft_s: float
    stages_s: Mapping[str, float]


def counted(samples: Mapping[str, float]) -> Counted:
    """`samples`: as `exposition.values` has them."""
    prefix = f"{STAGES}_sum/"
    names = [key.removeprefix(prefix) for key in samples if key.startswith(prefix)]
    return Counted(
        requests=int(samples.get(f"{TTFT}_count", 0)),
        explained={name: int(samples[f"{STAGES}_count/{name}"]) for name in names},
        ttft_s=samples.get(f"{TTFT}_sum", 0.0),
        stages_s={name: samples[prefix + name] for name in names},
    )


def timing(before: Counted, after: Counted) -> summary.ServerTiming | None:
    """Of the one request between the two; None: there was not one, or it is not explained yet."""
    grown = {name: count - before.explained.get(name, 0) for name, count in after.explained.items()}
    if after.requests - before.requests != 1 or not grown or set(grown.values()) != {1}:
        return None
    return summary.ServerTiming(
        ttft_ms=(after.ttft_s - before.ttft_s) * 1e3,
        stages_ms={
            name: (seconds - before.stages_s.get(name, 0.0)) * 1e3 for name, seconds in after.stages_s.items()
        },
    )


class Client(bench_client.Client):
    """One client of one sidecar that nobody else asks; its records have the sidecar's timing.

    Looks at the sidecar after each request, which no request waits for.
    """

    def __init__(
        self, http: aiohttp.ClientSession, running: beside.Sidecar, model: str, before: Counted
    ) -> None:
        """`before`: what the sidecar has counted until now."""
        super().__init__(http, running.url, model)
        self._running = running
        self._before = before

    @staticmethod
    async def of(http: aiohttp.ClientSession, running: beside.Sidecar, model: str) -> "Client":
        return Client(http, running, model, counted(await running.samples()))

    async def ask(
        self,
        request: workload.Request,
        start_s: float | None = None,
        on_content: Callable[[float], None] = lambda now_s: None,
    ) -> summary.Record:
        record = await super().ask(request, start_s, on_content)
        said = None if record.error else await self._timing()
        if said is None:
            self._before = counted(await self._running.samples())
            error = record.error or "the sidecar did not count this request by itself"
            return dataclasses.replace(record, error=error)
        return dataclasses.replace(record, server_timing=said)

    async def _timing(self) -> summary.ServerTiming | None:
        deadline_s = time.monotonic() + LOOK_LIMIT_S
        while True:
            after = counted(await self._running.samples())
            if (said := timing(self._before, after)) is not None:
                self._before = after
                return said
            if time.monotonic() > deadline_s:
                return None
            await asyncio.sleep(LOOK_EVERY_S)
