"""Reads `/state` of the replicas' sidecars: every few seconds from all, at once and often from a few.

A reconcile never waits for a pod: it reads what was scraped last. While a replica is being asked to take new
flags, `watch` reads it every 75 ms, so that a patched spec is seen in force without a fixed delay.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import aiohttp
import pydantic

from firsttoken_api import names
from firsttoken_api.state import SidecarState
from firsttoken_operator import metrics
from firsttoken_operator.store import ServiceKey

log = logging.getLogger(__name__)

CONCURRENCY = 32
TIMEOUT_S = 2.0
LARGEST_BYTES = 256 * 1024
WATCH_EVERY_S = 0.075
WATCH_FOR_S = 10.0
FAILURES_TOLD = 3


@dataclass(frozen=True)
class Target:
    """A pod to read."""

    service: ServiceKey
    uid: str
    name: str
    address: str


@dataclass(frozen=True)
class Scraped:
    """What is known of a pod from its sidecar."""

    state: SidecarState | None
    failures: int = 0
    """In a row, since the last answer."""


def _is_news(before: Scraped, current: Scraped) -> bool:
    """A pod that goes on failing is told once: its service need not be looked at each time."""
    if current.state != before.state:
        return True
    return min(current.failures, FAILURES_TOLD) != min(before.failures, FAILURES_TOLD)


def _with_last_flags(state: SidecarState, before: SidecarState | None) -> SidecarState:
    """A busy engine that does not answer its sidecar for a moment has lost nothing: what it had in force
    counts until it answers again. A restart shows then."""
    if state.engine is not None or before is None:
        return state
    return state.model_copy(update={"flags": before.flags})


def url_of(target: Target) -> str:
    host = f"[{target.address}]" if ":" in target.address else target.address
    return f"http://{host}:{names.OPS_PORT}/state"


class Scraper:
    """The last known states by pod uid."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        targets: Callable[[], Iterable[Target]],
        changed: Callable[[ServiceKey], None],
        counters: metrics.Metrics,
        interval_s: float,
        url: Callable[[Target], str] = url_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._targets = targets
        self._changed = changed
        self._metrics = counters
        self._interval_s = interval_s
        self._url = url
        self._clock = clock
        self._known: dict[str, Scraped] = {}
        self._watched: dict[str, tuple[Target, float]] = {}
        self._wake = asyncio.Event()
        self._limit = asyncio.Semaphore(CONCURRENCY)

    def of(self, uid: str) -> Scraped:
        return self._known.get(uid, Scraped(None))

    def watch(self, target: Target) -> None:
        """Read this pod every 75 ms for a while; a change is reported as it is seen."""
        self._watched[target.uid] = (target, self._clock() + WATCH_FOR_S)
        self._wake.set()

    def unwatch(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._watched.pop(uid, None)

    async def read(self, targets: Iterable[Target]) -> None:
        """Read these now; what fails counts as a failed scrape."""
        await asyncio.gather(*(self._read(target) for target in targets))

    async def run(self) -> None:
        """Read every target each interval, until cancelled."""
        while True:
            begin = self._clock()
            targets = tuple(self._targets())
            alive = {target.uid for target in targets}
            self._known = {uid: known for uid, known in self._known.items() if uid in alive}
            await self.read(targets)
            await asyncio.sleep(max(0.1, self._interval_s - (self._clock() - begin)))

    async def run_watch(self) -> None:
        """Read the watched targets often, until cancelled."""
        while True:
            if not self._watched:
                self._wake.clear()
                await self._wake.wait()
            now = self._clock()
            self._watched = {uid: each for uid, each in self._watched.items() if each[1] > now}
            await self.read([target for target, _ in self._watched.values()])
            await asyncio.sleep(WATCH_EVERY_S)

    async def _read(self, target: Target) -> None:
        before = self.of(target.uid)
        try:
            async with (
                self._limit,
                asyncio.timeout(TIMEOUT_S),
                self._session.get(self._url(target)) as response,
            ):
                body = await _body(response)
            current = Scraped(_with_last_flags(SidecarState.model_validate_json(body), before.state))
        except TimeoutError:
            current = self._failed(target, before, "timeout", "no answer")
        except aiohttp.ClientError as error:
            current = self._failed(target, before, "connection", str(error))
        except ValueError as error:  # also pydantic.ValidationError and an odd status
            what = "not a state" if isinstance(error, pydantic.ValidationError) else str(error)
            current = self._failed(target, before, "content", what)
        self._known[target.uid] = current
        if _is_news(before, current):
            self._changed(target.service)

    def _failed(self, target: Target, before: Scraped, reason: str, message: str) -> Scraped:
        self._metrics.scrape_failures.labels(reason).inc()
        log.debug("state of %s: %s", target.name, message)
        return Scraped(before.state, before.failures + 1)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body of a good answer of a sensible size. ValueError otherwise."""
    if response.status != 200:
        raise ValueError(f"HTTP {response.status}")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes")
    return bytes(body)
