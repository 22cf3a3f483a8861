"""The keyed work queue between the watches and `reconcile`.

A key waits at most once however many events name it; a key in work is not handed out again, but remembered
if an event arrives meanwhile; a failing key comes back after 1 s, 2 s, ... 5 min with jitter, and an event
that names it brings it forward. `Schedule` is the rule, with time passed in; `run` is the asyncio shell.
"""

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Key = tuple[str, str]
"""(namespace, name) of an InferenceService."""

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 300.0


def backoff_s(failures: int, jitter: float) -> float:
    """Seconds until the next try after `failures` in a row; `jitter` in [0, 1) takes off up to a fifth."""
    doubled = BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 20)
    return min(doubled, BACKOFF_LAST_S) * (1.0 - 0.2 * jitter)


@dataclass
class Schedule:
    """Which key is due when. No clock of its own."""

    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)
    _since: dict[Key, float] = field(default_factory=dict)
    _in_work: set[Key] = field(default_factory=set)
    _failures: dict[Key, int] = field(default_factory=dict)
    _counter: "itertools.count[int]" = field(default_factory=itertools.count)

    def add(self, key: Key, now: float, delay_s: float = 0.0) -> None:
        """Ask for a run at `now + delay_s`, or earlier if one is asked for already."""
        due = now + delay_s
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        if delay_s == 0.0:
            self._since.setdefault(key, now)
        heapq.heappush(self._heap, (due, next(self._counter), key))

    def nudge(self, key: Key, now: float) -> None:
        """Like `add`, but a key that keeps failing waits for its next try."""
        if key not in self._failures:
            self.add(key, now)

    def take(self, now: float) -> Key | None:
        """The key that is due longest and not in work; it counts as in work until `finish`."""
        parked: list[tuple[float, int, Key]] = []
        taken: Key | None = None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            due, _, key = entry
            if self._due.get(key) != due:
                continue  # replaced by an earlier entry, or taken since
            if key in self._in_work:
                parked.append(entry)
                continue
            taken = key
            break
        for entry in parked:
            heapq.heappush(self._heap, entry)
        if taken is not None:
            del self._due[taken]
            self._since.pop(taken, None)
            self._in_work.add(taken)
        return taken

    def finish(self, key: Key, now: float, again_in_s: float | None = None) -> None:
        """A run ended well. `again_in_s`: look again later even without an event."""
        self._in_work.discard(key)
        self._failures.pop(key, None)
        if again_in_s is not None:
            self.add(key, now, again_in_s)

    def fail(self, key: Key, now: float, jitter: float, at_least_s: float = 0.0) -> float:
        """A run failed; returns the seconds until the next try."""
        self._in_work.discard(key)
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay_s = max(backoff_s(failures, jitter), at_least_s)
        self.add(key, now, delay_s)
        return delay_s

    def next_due(self, now: float) -> float | None:
        """Seconds until some key that is not in work becomes due; None if there is none."""
        waits = [due - now for key, due in self._due.items() if key not in self._in_work]
        return max(0.0, min(waits)) if waits else None

    def depth(self, now: float) -> int:
        """Keys that are due and not in work."""
        return sum(1 for key, due in self._due.items() if due <= now and key not in self._in_work)

    def oldest_s(self, now: float) -> float:
        """How long the key that waits longest has waited."""
        return max((now - since for since in self._since.values()), default=0.0)


@dataclass(frozen=True)
class Retry:
    """What a reconcile answers when it wants to be asked again without an event."""

    after_s: float


class RetryAfterError(Exception):
    """Raise from a reconcile to count as failed, but to wait at least this long (HTTP 429)."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"asked to wait {after_s} s")
        self.after_s = after_s


class Queue:
    """The schedule with a clock and workers. Made inside a running event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.schedule = Schedule()
        self._clock = clock
        self._jitter = jitter
        self._changed = asyncio.Event()

    def add(self, key: Key, delay_s: float = 0.0) -> None:
        self.schedule.add(key, self._clock(), delay_s)
        self._changed.set()

    def nudge(self, key: Key) -> None:
        """For news that come by themselves every few seconds."""
        self.schedule.nudge(key, self._clock())
        self._changed.set()

    def depth(self) -> int:
        return self.schedule.depth(self._clock())

    def oldest_s(self) -> float:
        return self.schedule.oldest_s(self._clock())

    async def run(
        self,
        work: Callable[[Key], Awaitable[Retry | None]],
        failed: Callable[[Key, BaseException, float], None],
        expected: tuple[type[BaseException], ...],
        workers: int,
    ) -> None:
        """Run `work` for due keys until cancelled, at most `workers` at once, never one key twice at a time.

        Exceptions of the `expected` types are reported to `failed` with the delay and tried again; any other
        is our own mistake and ends the run (the process restarts and says why).
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker(work, failed, expected))

    async def _worker(
        self,
        work: Callable[[Key], Awaitable[Retry | None]],
        failed: Callable[[Key, BaseException, float], None],
        expected: tuple[type[BaseException], ...],
    ) -> None:
        while True:
            key = await self._next()
            try:
                answer = await work(key)
            except RetryAfterError as error:
                delay_s = self.schedule.fail(key, self._clock(), self._jitter(), error.after_s)
                failed(key, error, delay_s)
            except expected as error:
                failed(key, error, self.schedule.fail(key, self._clock(), self._jitter()))
            else:
                self.schedule.finish(key, self._clock(), answer.after_s if answer else None)
            self._changed.set()

    async def _next(self) -> Key:
        while True:
            now = self._clock()
            key = self.schedule.take(now)
            if key is not None:
                return key
            self._changed.clear()
            wait_s = self.schedule.next_due(now)
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
