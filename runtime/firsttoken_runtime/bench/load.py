"""Sends the lanes of a load, side by side, and collects what came back; bounded in time.

Closed loop: each of a lane's clients takes the next request when its last one has ended. Open loop: every
request is sent when it is due, however many are open; its TTFT counts from then, so a client that falls
behind cannot make the server look better.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import summary, workload

NOT_IN_TIME = "not finished when the time was up"


@dataclass(frozen=True)
class Outcome:
    """What one load gave."""

    records: tuple[summary.Record, ...]
    duration_s: float
    is_complete: bool
    send_delay_s: float


class _Load:
    def __init__(self, client: bench_client.Client, on_done: Callable[[], None]) -> None:
        self.client = client
        self.records: list[summary.Record] = []
        self.open: dict[int, tuple[workload.Request, float]] = {}
        self.send_delay_s = 0.0
        self.foreground_done = asyncio.Event()
        self._on_done = on_done
        self._next_key = 0

    async def ask(self, request: workload.Request, due_s: float | None = None) -> None:
        key, self._next_key = self._next_key, self._next_key + 1
        now_s = self.client.now_s()
        if due_s is not None:
            self.send_delay_s = max(self.send_delay_s, now_s - due_s)
        start_s = now_s if due_s is None else due_s
        self.open[key] = (request, start_s)
        self.records.append(await self.client.ask(request, start_s))
        del self.open[key]
        self._on_done()

    async def lane(self, lane: workload.Lane) -> None:
        if lane.requests and lane.requests[0].arrival_s is not None:
            await self._open_loop(lane)
        else:
            source = iter(self._endless(lane) if lane.is_background else lane.requests)
            async with asyncio.TaskGroup() as clients:
                for _ in range(lane.concurrency):
                    clients.create_task(self._closed_loop(source))

    def _endless(self, lane: workload.Lane) -> Iterator[workload.Request]:
        while True:
            for request in lane.requests:
                if self.foreground_done.is_set():
                    return
                yield request

    async def _closed_loop(self, source: Iterator[workload.Request]) -> None:
        for request in source:
            await self.ask(request)

    async def _open_loop(self, lane: workload.Lane) -> None:
        async with asyncio.TaskGroup() as asking:
            for request in lane.requests:
                assert request.arrival_s is not None
                await asyncio.sleep(max(0.0, request.arrival_s - self.client.now_s()))
                asking.create_task(self.ask(request, request.arrival_s))

    async def all(self, lanes: Sequence[workload.Lane]) -> None:
        async with asyncio.TaskGroup() as running:
            foreground = [running.create_task(self.lane(one)) for one in lanes if not one.is_background]
            for one in lanes:
                if one.is_background:
                    running.create_task(self.lane(one))
            await asyncio.gather(*foreground)
            self.foreground_done.set()

    def unfinished(self, now_s: float) -> list[summary.Record]:
        return [
            summary.Record(
                group=request.group,
                prompt_tokens=len(request.prompt_token_ids),
                output_tokens=0,
                start_s=start_s,
                end_s=now_s,
                error=NOT_IN_TIME,
            )
            for request, start_s in self.open.values()
        ]


async def run(
    client: bench_client.Client,
    lanes: Sequence[workload.Lane],
    time_limit_s: float,
    on_done: Callable[[], None] = lambda: None,
) -> Outcome:
    """The whole load, or as much of it as `time_limit_s` allows. `on_done` is called after each request."""
    load = _Load(client, on_done)
    client.started_at_s += client.now_s()
    try:
        async with asyncio.timeout(time_limit_s):
            await load.all(lanes)
    except TimeoutError:
        now_s = client.now_s()
        records = (*load.records, *load.unfinished(now_s))
        return Outcome(records, now_s, is_complete=False, send_delay_s=load.send_delay_s)
    return Outcome(tuple(load.records), client.now_s(), is_complete=True, send_delay_s=load.send_delay_s)
