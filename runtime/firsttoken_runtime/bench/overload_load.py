"""The open loop of `bench overload`: sends when a request is due, comes back when a refusal says so, and
notes how well it kept its own times.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import load, overload, summary, workload

RETRY_SPREAD_S = 0.1
"""Clients come back a little later than they were told to, not all at once."""


@dataclass
class OpenLoop:
    """One phase. `obeying` is the share of clients that come back."""

    asking: bench_client.Client
    requests: Sequence[workload.Request]
    times_s: Sequence[float]
    limits: overload.Limits
    seed: int
    obeying: float
    duration_s: float
    grace_s: float
    """After the last arrival, for those that were let in."""
    stops_when_lost: bool
    """Once P95 cannot hold any more."""
    on_done: Callable[[], None] = lambda: None
    attempts: list[overload.Attempt] = field(default_factory=list)
    is_cut: bool = False
    _late: dict[str, int] = field(default_factory=dict)
    _lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, name: str, rate_per_s: float) -> overload.Phase:
        self.asking.started_at_s += self.asking.now_s()
        cpu_s = time.process_time()
        tasks: set[asyncio.Task[None]] = set()
        sending = asyncio.create_task(self._send_all(tasks))
        lost = asyncio.create_task(self._lost.wait())
        try:
            await asyncio.wait([sending, lost], return_when=asyncio.FIRST_COMPLETED)
            if not self._lost.is_set():
                sending.result()
                await self._grace(tasks, lost)
            self.is_cut = self._lost.is_set()
        finally:
            elapsed_s = self.asking.now_s()
            cpu = (time.process_time() - cpu_s) / elapsed_s
            for task in (sending, lost, *tasks):
                task.cancel()
            await asyncio.gather(sending, lost, *tasks, return_exceptions=True)
        return overload.Phase(
            name, rate_per_s, self.duration_s, tuple(self.attempts), len(self.times_s), self.is_cut, cpu
        )

    async def _grace(self, tasks: set[asyncio.Task[None]], lost: asyncio.Task[bool]) -> None:
        deadline_s = self.asking.now_s() + self.grace_s
        while tasks and not lost.done() and (left_s := deadline_s - self.asking.now_s()) > 0:
            await asyncio.wait([*tasks, lost], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    async def _send_all(self, tasks: set[asyncio.Task[None]]) -> None:
        for index, (request, due_s) in enumerate(zip(self.requests, self.times_s, strict=True)):
            await asyncio.sleep(max(0.0, due_s - self.asking.now_s()))
            task = asyncio.create_task(self._client(index, request, due_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(max(0.0, self.duration_s - self.asking.now_s()))

    async def _client(self, index: int, request: workload.Request, due_s: float) -> None:
        attempt = await self._ask(request, due_s, is_retry=False)
        self.on_done()
        door = attempt.record.door
        if not attempt.is_refused or door is None or door.retry_after_s is None:
            return
        if not overload.obeys(self.seed, index, self.obeying):
            return
        spread_s = RETRY_SPREAD_S * (index % 10) / 10
        due_s = attempt.record.end_s + door.retry_after_s + spread_s
        if due_s < self.duration_s:
            await asyncio.sleep(max(0.0, due_s - self.asking.now_s()))
            await self._ask(request, due_s, is_retry=True)

    async def _ask(self, request: workload.Request, due_s: float, *, is_retry: bool) -> overload.Attempt:
        sent_s = self.asking.now_s()
        contents_s: list[float] = []
        try:
            record = await self.asking.ask(request, due_s, contents_s.append)
        except asyncio.CancelledError:
            # The phase is over; its first token may have come all the same.
            record = summary.Record(
                group=request.group,
                prompt_tokens=request.prompt_tokens,
                output_tokens=len(contents_s),
                start_s=due_s,
                end_s=self.asking.now_s(),
                ttft_s=contents_s[0] - due_s if contents_s else None,
                error=load.NOT_IN_TIME,
            )
            self.attempts.append(overload.Attempt(request.group, due_s, sent_s, record, is_retry))
            raise
        attempt = overload.Attempt(request.group, due_s, sent_s, record, is_retry)
        self.attempts.append(attempt)
        self._count(attempt)
        return attempt

    def _count(self, attempt: overload.Attempt) -> None:
        if not self.stops_when_lost or attempt.is_good(self.limits):
            return
        name = attempt.request_class
        self._late[name] = self._late.get(name, 0) + 1
        planned = sum(1 for one in self.requests if one.group == name)
        if self._late[name] > overload.breaches_allowed(planned):
            self._lost.set()
