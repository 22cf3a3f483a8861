"""What the router makes of a request: from an arrival and looks at peers to a target."""

import random
import time
from collections.abc import Callable

import aiohttp
import pytest

from firsttoken_api import hot_settings
from firsttoken_api.routing import RoutingStrategy
from firsttoken_api.state import LoadState, SidecarState
from firsttoken_sidecar import arrivals, caller, forwarding, inspection, peers, route_counts, router, routing
from firsttoken_sidecar.peer import Peer
from firsttoken_sidecar.route_counts import PeerFailureReason

OWN, FIRST, SECOND = "10.0.0.1", "10.0.0.2", "10.0.0.3"
AWARE = RoutingStrategy.PREFIX_AWARE


def load(ahead_tokens: int = 0, priority: int = 0, tokens_per_s: float = 1_000.0) -> LoadState:
    return LoadState(
        ahead_tokens_by_priority={str(priority): ahead_tokens}, prefill_tokens_per_s=tokens_per_s
    )


def arrival(
    text: str = "", *, is_forwarded: bool = False, is_in_memory: bool = True, request_class: str = ""
) -> arrivals.Arrival:
    encoded = text.encode()
    return arrivals.Arrival(
        request_id="1",
        arrival_s=0.0,
        caller=caller.ANONYMOUS,
        inspected=inspection.Inspected(
            body=b"{}" if is_in_memory else None,
            request_class=request_class,
            prompt_bytes=len(encoded),
            estimated_prompt_tokens=len(encoded) // 4,
            prefix_keys=inspection.prefix_keys("", encoded),
        ),
        client="somebody",
        is_forwarded=is_forwarded,
    )


class Setup:
    """A router with two peers that were just looked at, and nothing that runs."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        strategy: RoutingStrategy,
        settings: hot_settings.HotSettings | None,
    ) -> None:
        self.counts = route_counts.RouteCounts()
        self.now = 100.0
        clock: Callable[[], float] = lambda: self.now  # noqa: E731 (the test moves it)
        self.peers = peers.Peers(("peers",), OWN, lambda: 1, session, self.counts, clock)
        self.own_load: LoadState | None = load()
        self.is_own_accepting = True
        self.router = router.Router(
            strategy,
            lambda: "",
            self.peers,
            self.counts,
            clock,
            own_load=lambda: self.own_load,
            is_own_accepting=lambda: self.is_own_accepting,
            settings=lambda: settings,
            random=random.Random(1),
        )
        for name in (FIRST, SECOND):
            self.peers.members[name] = Peer(name)
            self.look(name, load())

    def look(self, name: str, state: LoadState | None, *, is_ready: bool = True) -> None:
        self.peers.members[name].seen(SidecarState(ready=is_ready, load=state), state, self.now, self.now)
        # Nobody is to look at an address that is not there.
        self.peers.members[name].tried_s = self.now

    async def route(self, of: arrivals.Arrival, failed: frozenset[str] = frozenset()) -> str:
        target = await self.router.route(of, failed)
        return OWN if target.peer is None else target.peer.name


async def setup(strategy: RoutingStrategy = AWARE, settings: hot_settings.HotSettings | None = None) -> Setup:
    async with aiohttp.ClientSession() as session:
        return Setup(session, strategy, settings)


async def test_what_comes_from_a_peer_is_never_sent_on() -> None:
    at = await setup()
    at.own_load = load(1_000_000)
    assert await at.route(arrival("x" * 5_000)) != OWN
    assert await at.route(arrival("x" * 5_000, is_forwarded=True)) == OWN
    assert at.counts.routed[routing.Reason.FORWARDED] == 1


async def test_what_is_not_in_memory_stays() -> None:
    at = await setup()
    at.own_load = load(1_000_000)
    assert await at.route(arrival(is_in_memory=False)) == OWN


async def test_without_a_strategy_everything_stays() -> None:
    at = await setup(RoutingStrategy.NONE)
    at.own_load = load(1_000_000)
    assert await at.route(arrival("x" * 5_000)) == OWN
    assert at.counts.routed[routing.Reason.OFF] == 1


async def test_a_prefix_has_one_home_whoever_is_asked() -> None:
    homes: dict[str, set[str]] = {}
    for own in (OWN, FIRST, SECOND):
        at = await setup()
        at.peers.own_name = own
        at.peers.members = {n: at.peers.members.get(n) or Peer(n) for n in {OWN, FIRST, SECOND} - {own}}
        for i in range(20):
            at.now += 1.0
            for name in at.peers.members:
                at.look(name, load())
            target = await at.router.route(arrival(f"prompt {i} " * 200))
            homes.setdefault(f"{i}", set()).add(target.peer.name if target.peer is not None else own)
    assert all(len(those) == 1 for those in homes.values())
    assert len(set.union(*homes.values())) == 3


async def test_the_least_waiting_is_chosen_by_class() -> None:
    classes = (
        hot_settings.ClassSettings(name="urgent", priority=10, ttft_p99_s=1.0),
        hot_settings.ClassSettings(name="batch", priority=0, ttft_p99_s=9.0),
    )
    settings = hot_settings.HotSettings(
        generation=1, flags=(), objective=hot_settings.Objective(ttft_p95_s=1.0), classes=classes
    )
    at = await setup(RoutingStrategy.LEAST_BACKLOG, settings)
    at.own_load = load(500, priority=10)
    at.look(FIRST, load(5_000, priority=0))
    at.look(SECOND, load(9_000, priority=10))
    # What waits in a less urgent class is not ahead of an urgent request.
    assert await at.route(arrival("hello", request_class="urgent")) == FIRST
    assert await at.route(arrival("hello", request_class="batch")) == OWN


async def test_what_was_sent_since_the_last_look_counts() -> None:
    at = await setup(RoutingStrategy.LEAST_BACKLOG)
    at.own_load = load(3_000)
    at.look(FIRST, load(0))
    at.look(SECOND, load(100_000))
    sent = [await at.route(arrival(f"{i}" * 4_000)) for i in range(8)]
    # A thousand tokens each: three of them are as long a wait as here.
    assert sent[:3] == [FIRST] * 3
    assert OWN in sent[3:6]
    at.now += 1.0
    at.look(FIRST, load(0))
    assert await at.route(arrival("y" * 4_000)) == FIRST


async def test_replicas_of_unknown_speed_compare_by_what_waits() -> None:
    at = await setup(RoutingStrategy.LEAST_BACKLOG)
    at.own_load = LoadState(waiting=7)
    at.look(FIRST, LoadState(waiting=2))
    at.look(SECOND, None)
    assert await at.route(arrival("hello")) == SECOND


async def test_an_own_engine_that_takes_nothing_is_passed_over() -> None:
    at = await setup()
    at.is_own_accepting = False
    assert {await at.route(arrival(f"{i}" * 2_000)) for i in range(30)} == {FIRST, SECOND}


async def test_with_nobody_there_the_own_engine_says_so() -> None:
    at = await setup()
    at.is_own_accepting = False
    for name in (FIRST, SECOND):
        at.look(name, None, is_ready=False)
    target = await at.router.route(arrival("x" * 2_000))
    assert target == router.Target(None, routing.Reason.ALONE)


async def test_failover_goes_to_who_has_not_failed() -> None:
    at = await setup()
    where = {await at.route(arrival(f"{i}" * 2_000), frozenset({router.OWN})) for i in range(30)}
    assert where == {FIRST, SECOND}
    where = {await at.route(arrival(f"{i}" * 2_000), frozenset({router.OWN, FIRST})) for i in range(5)}
    assert where == {SECOND}
    where = {await at.route(arrival(f"{i}" * 2_000), frozenset({FIRST, SECOND})) for i in range(5)}
    assert where == {OWN}
    assert at.counts.routed[routing.Reason.FAILOVER] == 40


async def test_a_peer_that_fails_is_left_alone_but_not_for_being_full() -> None:
    at = await setup()
    first = at.peers.members[FIRST]
    at.router.failed(first, forwarding.PeerFailedError("full", PeerFailureReason.REFUSED))
    assert first.is_accepting(at.now)
    at.router.failed(first, forwarding.PeerFailedError("gone", PeerFailureReason.CONNECTION))
    assert not first.is_accepting(at.now)
    assert at.counts.peer_failures == {PeerFailureReason.REFUSED: 1, PeerFailureReason.CONNECTION: 1}


async def test_a_prompt_goes_where_most_of_it_was_sent_before() -> None:
    at = await setup()
    conversation = "turn one " * 500
    home = await at.route(arrival(conversation))
    at.now += 1.0
    busy = load(600)
    if home == OWN:
        at.own_load = busy
    else:
        at.look(home, busy)
    # A wait of 0.6 s is worth it where 4,500 bytes need not be computed again; for others it is not.
    assert await at.route(arrival(conversation + "and turn two")) == home
    others = {await at.route(arrival(f"somebody else {i}" * 400)) for i in range(10)}
    assert others - {home}


@pytest.mark.parametrize("count", [1, 100])
async def test_a_decision_is_cheap(count: int) -> None:
    at = await setup()
    for i in range(count - 1):
        name = f"10.1.0.{i}"
        at.peers.members[name] = Peer(name)
        at.look(name, load(i))
    prompts = [arrival(f"{i} " * 20_000) for i in range(50)]
    began_s = time.process_time()
    for each in prompts:
        await at.route(each)
    assert (time.process_time() - began_s) / len(prompts) < 0.02
