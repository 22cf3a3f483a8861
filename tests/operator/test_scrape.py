"""Reading sidecars over loopback: answers, failures, and watching one closely."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from builders import observed as build
from firsttoken_api.state import SidecarState
from firsttoken_operator import metrics, scrape
from firsttoken_operator.scrape import Scraper, Target

KEY = ("default", "chat")


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


class Sidecars:
    """One server that plays all pods; the path is the pod's name."""

    def __init__(self) -> None:
        self.generation = 1
        self.hits = 0
        self.port = 0
        self.is_engine_silent = False

    async def state(self, request: web.Request) -> web.StreamResponse:
        self.hits += 1
        name = request.match_info["name"]
        if name == "broken":
            return web.Response(text="<html>")
        if name == "error":
            return web.Response(status=500)
        if name == "large":
            return web.Response(body=b" " * (scrape.LARGEST_BYTES + 1))
        if name == "slow":
            await asyncio.sleep(30)
        state = build.sidecar_state(self.generation)
        if self.is_engine_silent:
            state = SidecarState()
        return web.Response(text=state.model_dump_json())

    def url(self, target: Target) -> str:
        return f"http://127.0.0.1:{self.port}/{target.name}"


@pytest.fixture
async def sidecars() -> AsyncIterator[Sidecars]:
    server = Sidecars()
    app = web.Application()
    app.add_routes([web.get("/{name}", server.state)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


class Bench:
    def __init__(self, sidecars: Sidecars, session: aiohttp.ClientSession, *names: str) -> None:
        self.targets = [Target(KEY, f"uid-{name}", name, "127.0.0.1") for name in names]
        self.changes = 0
        self.changed = asyncio.Event()
        self.counters = metrics.Metrics(CollectorRegistry())
        self.scraper = Scraper(
            session, lambda: self.targets, self._changed, self.counters, 0.1, url=sidecars.url
        )

    def _changed(self, key: tuple[str, str]) -> None:
        assert key == KEY
        self.changes += 1
        self.changed.set()

    def failures(self, reason: str) -> float:
        name = "firsttoken_operator_scrape_failures_total"
        return self.counters.registry.get_sample_value(name, {"reason": reason}) or 0.0


async def test_a_state_is_kept_and_reported_only_when_it_changes(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "good")
        await bench.scraper.read(bench.targets)
        await bench.scraper.read(bench.targets)
        known = bench.scraper.of("uid-good")
        assert known.state is not None
        assert known.state.flags.generation == 1
        assert bench.changes == 1
        sidecars.generation = 2
        await bench.scraper.read(bench.targets)
        assert bench.changes == 2


async def test_flags_in_force_outlive_a_moment_of_silence(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "good")
        await bench.scraper.read(bench.targets)
        sidecars.is_engine_silent = True
        for _ in range(2):
            await bench.scraper.read(bench.targets)
            known = bench.scraper.of("uid-good").state
            assert known is not None
            assert (known.engine, known.flags.generation) == (None, 1)
        sidecars.is_engine_silent, sidecars.generation = False, 0
        await bench.scraper.read(bench.targets)
        restarted = bench.scraper.of("uid-good").state
        assert restarted is not None
        assert restarted.flags.generation == 0


@pytest.mark.parametrize(
    ("name", "reason"), [("broken", "content"), ("error", "content"), ("large", "content")]
)
async def test_an_odd_answer_is_a_counted_failure(sidecars: Sidecars, name: str, reason: str) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, name)
        await bench.scraper.read(bench.targets)
        await bench.scraper.read(bench.targets)
        assert bench.scraper.of(f"uid-{name}") == scrape.Scraped(None, 2)
        assert bench.failures(reason) == 2


async def test_silence_and_refused_connections_are_failures(
    sidecars: Sidecars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "TIMEOUT_S", 0.05)
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "slow")
        await bench.scraper.read(bench.targets)
        assert bench.failures("timeout") == 1
        monkeypatch.setattr(scrape, "TIMEOUT_S", 5.0)
        sidecars.port = 1
        await bench.scraper.read(bench.targets)
        assert bench.failures("connection") == 1
        assert bench.scraper.of("uid-slow").failures == 2


async def test_a_pod_that_goes_on_failing_is_told_no_more(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "error")
        for _ in range(6):
            await bench.scraper.read(bench.targets)
        assert bench.scraper.of("uid-error").failures == 6
        assert bench.changes == scrape.FAILURES_TOLD


async def test_the_last_state_outlives_a_failure(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "good")
        await bench.scraper.read(bench.targets)
        bench.targets = [Target(KEY, "uid-good", "error", "127.0.0.1")]
        await bench.scraper.read(bench.targets)
        known = bench.scraper.of("uid-good")
        assert known.state is not None
        assert known.failures == 1


async def test_the_round_goes_on_and_forgets_pods_that_are_gone(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "good")
        running = asyncio.create_task(bench.scraper.run())
        async with asyncio.timeout(5):
            await bench.changed.wait()
        bench.targets = []
        await until(lambda: bench.scraper.of("uid-good").state is None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_watched_pod_is_read_often_until_it_is_let_go(sidecars: Sidecars) -> None:
    async with aiohttp.ClientSession() as session:
        bench = Bench(sidecars, session, "good")
        running = asyncio.create_task(bench.scraper.run_watch())
        await asyncio.sleep(0.05)
        assert sidecars.hits == 0
        bench.scraper.watch(bench.targets[0])
        await until(lambda: sidecars.hits >= 3)
        bench.scraper.unwatch(["uid-good"])
        await asyncio.sleep(0.1)
        hits = sidecars.hits
        await asyncio.sleep(0.2)
        assert sidecars.hits == hits
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_addresses_of_both_families() -> None:
    assert scrape.url_of(Target(KEY, "u", "p", "10.1.2.3")) == "http://10.1.2.3:9090/state"
    assert scrape.url_of(Target(KEY, "u", "p", "fd00::1")) == "http://[fd00::1]:9090/state"
