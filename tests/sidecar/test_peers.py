"""Finding peers and looking at them: real /state servers on loopback addresses, with one port for all."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from firsttoken_api.state import LoadState, SidecarState
from firsttoken_sidecar import addresses, peers, route_counts
from firsttoken_sidecar import peer as peer_module
from sidecar import fakes, ports

OWN, FIRST, SECOND = "127.0.0.11", "127.0.0.12", "127.0.0.13"


READY = SidecarState(pod="chat-1", ready=True, load=LoadState(waiting=3))


@dataclass
class FakePeer:
    """Answers /state as the test says."""

    host: str
    port: int
    state: SidecarState = READY
    body: bytes | None = None
    status: int = 200
    delay_s: float = 0.0
    asked: int = 0
    runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/state", self._answer)
        self.runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
        await self.runner.setup()
        await web.TCPSite(self.runner, self.host, self.port, reuse_address=True).start()

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(self.delay_s)
        body = self.state.model_dump_json().encode() if self.body is None else self.body
        return web.Response(body=body, status=self.status)


@dataclass
class Dns:
    """Names and what they resolve to; a name that is missing fails."""

    names: dict[str, set[str]] = field(default_factory=dict)
    asked: int = 0

    async def resolve(self, name: str) -> frozenset[str]:
        self.asked += 1
        if name not in self.names:
            raise addresses.LookupFailedError(f"{name}: no such name")
        return frozenset(self.names[name])


@dataclass
class Setup:
    known: peers.Peers
    counts: route_counts.RouteCounts
    dns: Dns
    first: FakePeer
    second: FakePeer

    def accepting(self) -> set[str]:
        return {each.name for each in self.known.accepting(time.monotonic())}

    async def until_accepting(self, *names: str) -> None:
        async def ask() -> set[str]:
            self.known.keep_fresh()
            return self.accepting()

        await fakes.until_async(ask, set(names), timeout_s=20.0)


@contextlib.asynccontextmanager
async def setup(*hosts: str, own: str | None = OWN) -> AsyncIterator[Setup]:
    (port,) = ports.free([OWN, FIRST, SECOND], 1)
    first, second = FakePeer(FIRST, port), FakePeer(SECOND, port)
    dns = Dns({"chat-peers": {OWN, FIRST, SECOND}})
    counts = route_counts.RouteCounts()
    await first.start()
    await second.start()
    async with aiohttp.ClientSession() as session:
        known = peers.Peers(
            hosts or ("chat-peers",),
            own,
            lambda: port,
            session,
            counts,
            time.monotonic,
            dns.resolve if not hosts else addresses.resolve,
        )
        running = asyncio.create_task(known.run())
        try:
            yield Setup(known, counts, dns, first, second)
        finally:
            running.cancel()
            await asyncio.wait([running])
            await first.stop()
            await second.stop()


@pytest.fixture(autouse=True)
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds between replicas, in tenths."""
    monkeypatch.setattr(peers, "RESOLVE_AT_MOST_EVERY_S", 0.02)
    monkeypatch.setattr(peers, "RESOLVE_EVERY_S", 0.1)
    monkeypatch.setattr(peers, "IDLE_LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(peers, "UNREADY_LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(peer_module, "FIRST_ASIDE_S", 0.05)


async def test_everybody_but_oneself_is_found_and_looked_at() -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        assert at.known.own_name == OWN
        load = at.known.members[FIRST].load
        assert load is not None
        assert load.waiting == 3


async def test_a_list_of_addresses_needs_no_names() -> None:
    async with setup(OWN, FIRST, SECOND) as at:
        await at.until_accepting(FIRST, SECOND)


async def test_the_own_address_is_found_out_when_it_is_not_given() -> None:
    async with setup("127.0.0.1", FIRST, own=None) as at:
        await at.until_accepting(FIRST)
        assert at.known.own_name == "127.0.0.1"


async def test_without_names_there_is_nobody() -> None:
    async with aiohttp.ClientSession() as session:
        counts = route_counts.RouteCounts()
        known = peers.Peers((), OWN, lambda: 1, session, counts, time.monotonic)
        assert known.is_alone
        assert not known.is_peer(FIRST)
        assert known.accepting(time.monotonic()) == []


async def test_who_starts_or_drains_is_left_out_until_it_is_ready() -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.first.state = SidecarState(ready=True, draining=True)
        await at.until_accepting(SECOND)
        at.first.state = SidecarState(ready=False)
        at.second.state = SidecarState(ready=True, evaluating=True)
        await at.until_accepting()
        at.first.state = SidecarState(ready=True)
        await at.until_accepting(FIRST)


async def test_a_dead_peer_is_set_aside_and_comes_back() -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        await at.first.stop()
        await at.until_accepting(SECOND)
        assert at.counts.peer_failures[route_counts.PeerFailureReason.STATE] >= 1
        await at.first.start()
        await at.until_accepting(FIRST, SECOND)


@pytest.mark.parametrize(("status", "body"), [(500, None), (200, b"<html>"), (200, b'{"ready": "perhaps"}')])
async def test_a_state_that_is_not_understood_is_a_failure(status: int, body: bytes | None) -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.first.status, at.first.body = status, body
        await at.until_accepting(SECOND)


async def test_a_slow_state_is_a_failure_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LOOK_LIMIT_S", 0.3)
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.first.delay_s = 30.0
        await at.until_accepting(SECOND)
        # What is known of the other is as fresh as ever.
        assert at.second.asked > at.first.asked


async def test_states_are_asked_for_seldom_without_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "IDLE_LOOK_EVERY_S", 1_000.0)
    monkeypatch.setattr(peers, "BUSY_FOR_S", 0.0)
    async with setup() as at:
        await fakes.until(lambda: at.first.asked == 1, timeout_s=20.0)
        await asyncio.sleep(0.5)
        assert at.first.asked == 1


async def test_a_resolver_that_fails_takes_nobody_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.dns.names.clear()
        failed = at.counts.peer_failures
        await fakes.until(lambda: failed[route_counts.PeerFailureReason.LOOKUP] >= 3, timeout_s=20.0)
        await at.until_accepting(FIRST, SECOND)
        monkeypatch.setattr(peers, "UNRESOLVED_LIMIT_S", 0.05)
        await at.until_accepting()
        at.dns.names["chat-peers"] = {FIRST}
        await at.until_accepting(FIRST)


async def test_who_is_no_longer_listed_gets_nothing_and_is_still_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.dns.names["chat-peers"] = {OWN, SECOND}
        await at.until_accepting(SECOND)
        assert at.known.is_peer(FIRST)
        monkeypatch.setattr(peers, "REMEMBERED_S", 0.01)
        await fakes.until(lambda: not at.known.is_peer(FIRST), timeout_s=20.0)
        assert at.known.is_peer(SECOND) or at.dns.asked


async def test_only_peers_are_believed() -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        assert at.known.is_peer(FIRST)
        assert at.known.is_peer(f"::ffff:{SECOND}")
        for stranger in (OWN, "127.0.0.1", "10.9.9.9", "", None):
            assert not at.known.is_peer(stranger)


async def test_a_stranger_with_a_hop_makes_us_ask_for_new_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RESOLVE_EVERY_S", 1_000.0)
    async with setup() as at:
        at.dns.names["chat-peers"] = {SECOND}
        await fakes.until(lambda: at.dns.asked >= 1, timeout_s=20.0)
        at.dns.names["chat-peers"] = {FIRST, SECOND}

        async def ask() -> bool:
            return at.known.is_peer(FIRST)

        await fakes.until_async(ask, True, timeout_s=20.0)


async def test_a_failed_request_sets_the_peer_aside() -> None:
    async with setup() as at:
        await at.until_accepting(FIRST, SECOND)
        at.known.failed(at.known.members[FIRST])
        assert at.accepting() == {SECOND}
        await at.until_accepting(FIRST, SECOND)
