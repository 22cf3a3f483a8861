"""Where requests go, and where they go when that fails: every part around the decision is scripted."""

import asyncio
from collections.abc import Collection
from typing import cast

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from firsttoken_api import errors, hot_settings, names
from firsttoken_sidecar import (
    admitter,
    answers,
    arrivals,
    caller,
    dispatch,
    engines,
    exchange,
    forwarding,
    inspection,
    proxy,
    router,
    routing,
    upload,
)
from firsttoken_sidecar.peer import Peer
from firsttoken_sidecar.route_counts import PeerFailureReason
from sidecar import scripted

BODY = b'{"prompt": "hello"}'
UPLOAD = cast(upload.Upload, object())
"""Goes on as it came, unread."""
REFUSED = forwarding.PeerFailedError("no room", PeerFailureReason.REFUSED)
Going = scripted.Response | Exception
"""What a place answers to one request, or how it fails before it has answered."""


def classes_of(*declared: hot_settings.ClassSettings) -> hot_settings.HotSettings:
    objective = hot_settings.Objective(ttft_p95_s=0.5, window_s=60.0)
    return hot_settings.HotSettings(generation=1, flags=(), objective=objective, classes=declared)


def whole(text: bytes = b"hello", status: int = 200) -> scripted.Response:
    return scripted.Response(text, b"", status=status)


class World:
    """A dispatch, and all that it talks to."""

    def __init__(
        self,
        *,
        order: Collection[str] = (),
        peers: dict[str, Going] | None = None,
        engine: Going | None = None,
        refusal: errors.ApiError | None = None,
        hides_keys: bool = False,
        settings: hot_settings.HotSettings | None = None,
    ) -> None:
        """`order`: who is preferred, by name; the own engine is `router.OWN`, and what is left at the end."""
        self.order = (*order, router.OWN)
        self.peers = peers or {}
        self.engine = engine
        self.refusal = refusal
        self.ticket = scripted.Ticket()
        self.settings = settings
        self.asked: list[frozenset[str]] = []
        """What the router was told to leave out, each time."""
        self.failures: dict[str, PeerFailureReason] = {}
        self.went: list[str] = []
        """To whom the request went, in order."""
        self.outgoing: proxy.Outgoing | None = None
        self.to_peer: tuple[str, str, CIMultiDict[str], bytes] | None = None
        self.times_sent = 0
        self.priority: int | None = None
        self._dispatch = dispatch.Dispatch(
            cast(router.Router, self),
            cast(forwarding.Forwarding, _ToPeers(self)),
            cast(admitter.Admitter, self),
            cast(proxy.Proxy, _ToEngine(self)),
            cast(engines.Engine, self),
            lambda: self.settings,
            hides_keys=hides_keys,
        )

    async def route(self, arrival: arrivals.Arrival, failed: Collection[str] = ()) -> router.Target:
        self.asked.append(frozenset(failed))
        name = next((each for each in self.order if each not in failed), router.OWN)
        return router.Target(None if name == router.OWN else Peer(name), routing.Reason.HOME)

    def failed(self, peer: Peer, error: forwarding.PeerFailedError) -> None:
        self.failures[peer.name] = error.reason

    async def admit(self, arrival: arrivals.Arrival) -> scripted.Ticket:
        if self.refusal is not None:
            raise self.refusal
        return self.ticket

    def body_for(self, body: bytes, priority: int, tenant: str) -> bytes:
        self.priority = priority
        return body + tenant.encode()

    async def open(
        self,
        *,
        body: bytes | None = BODY,
        is_forwarded: bool = False,
        request_class: str = "",
        who: caller.Caller = caller.ANONYMOUS,
        headers: dict[str, str] | None = None,
    ) -> exchange.Exchange:
        arrival = arrivals.Arrival(
            request_id="1",
            arrival_s=0.0,
            caller=who,
            inspected=inspection.Inspected(body=body, request_class=request_class),
            client="somebody",
            is_forwarded=is_forwarded,
        )
        self.request = dispatch.Request(
            "POST", URL("/v1/chat/completions?a=b"), CIMultiDict(headers or {}), UPLOAD
        )
        return await self._dispatch.open(arrival, self.request, self._on_sent)

    def _on_sent(self) -> None:
        self.times_sent += 1


class _ToPeers:
    def __init__(self, world: World) -> None:
        self._world = world

    async def send(
        self,
        peer: Peer,
        method: str,
        raw_target: str,
        headers: CIMultiDict[str],
        body: bytes,
        arrival: arrivals.Arrival,
    ) -> aiohttp.ClientResponse:
        self._world.went.append(peer.name)
        self._world.to_peer = (method, raw_target, headers, body)
        going = self._world.peers[peer.name]
        if isinstance(going, Exception):
            raise going
        return cast(aiohttp.ClientResponse, going)


class _ToEngine:
    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, outgoing: proxy.Outgoing) -> answers.Upstream:
        self._world.went.append(router.OWN)
        self._world.outgoing = outgoing
        going = self._world.engine
        assert going is not None, "nobody expected the own engine to be asked"
        if isinstance(going, Exception):
            raise going
        return going.upstream()

    def broke_off(self, error: Exception) -> errors.ApiError:
        return errors.EngineUnreachableError("broke off")


async def text_of(under_way: exchange.Exchange) -> bytes:
    pieces = []
    while piece := await under_way.read():
        pieces.append(piece)
    under_way.close()
    return b"".join(pieces)


async def until_waiting(response: scripted.Response) -> None:
    while not response.reads:  # noqa: ASYNC110 (nothing tells that somebody waits)
        await asyncio.sleep(0)


async def test_the_own_engine_gets_who_asks_and_the_body_as_it_wants_it() -> None:
    settings = classes_of(hot_settings.ClassSettings(name="urgent", priority=7, ttft_p99_s=0.1))
    world = World(engine=whole(), hides_keys=True, settings=settings)
    under_way = await world.open(
        request_class="urgent",
        who=caller.Caller(name="key", tenant="acme"),
        headers={"Authorization": "Bearer secret", "Content-Length": "19", "X-Other": "1"},
    )
    assert await text_of(under_way) == b"hello"
    outgoing = world.outgoing
    assert outgoing is not None
    assert (outgoing.method, str(outgoing.target)) == ("POST", "/v1/chat/completions?a=b")
    assert dict(outgoing.headers) == {"X-Other": "1", names.HEADER_TENANT: "acme"}
    assert outgoing.body == BODY + b"acme"
    assert world.priority == 7
    assert (world.ticket.was_sent, world.ticket.closings, world.times_sent) == (True, [None], 1)


@pytest.mark.parametrize("request_class", ["", "nobody-knows"])
async def test_a_class_that_nobody_declared_has_no_priority(request_class: str) -> None:
    world = World(engine=whole(), settings=classes_of())
    (await world.open(request_class=request_class)).close()
    assert world.priority == 0


async def test_a_peer_gets_the_clients_key_and_the_body_as_it_came() -> None:
    world = World(order=["a"], peers={"a": whole(b"from a")}, hides_keys=True)
    under_way = await world.open(headers={"Authorization": "Bearer secret", "Content-Length": "19"})
    assert await text_of(under_way) == b"from a"
    assert world.to_peer == (
        "POST",
        "/v1/chat/completions?a=b",
        CIMultiDict({"Authorization": "Bearer secret"}),
        BODY,
    )
    assert under_way.ticket is None, "the peer lets it in, or not"
    assert (world.went, world.times_sent, world.failures) == (["a"], 1, {})


async def test_a_large_body_stays_and_is_streamed() -> None:
    world = World(order=["a"], engine=whole())
    (await world.open(body=None, headers={"Content-Length": "9999999"})).close()
    assert world.went == [router.OWN]
    assert world.outgoing is not None
    assert world.outgoing.body is UPLOAD
    assert world.outgoing.headers["Content-Length"] == "9999999"


async def test_what_a_peer_sent_on_is_never_sent_on_again() -> None:
    world = World(order=["a"], engine=errors.EngineUnreachableError("gone"))
    with pytest.raises(errors.EngineUnreachableError):
        await world.open(is_forwarded=True)
    assert world.went == [router.OWN]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\x00"])
async def test_what_is_no_json_goes_as_it_came(body: bytes) -> None:
    world = World(engine=whole(b"a 400", status=400))
    under_way = await world.open(body=body)
    assert (under_way.status, await text_of(under_way)) == (400, b"a 400")
    assert world.outgoing is not None
    assert world.outgoing.body == body


async def test_peers_that_fail_before_the_first_byte_are_followed_by_others() -> None:
    silent = scripted.Response(ConnectionResetError())
    world = World(order=["a", "b"], peers={"a": REFUSED, "b": silent}, engine=whole(b"own"))
    assert await text_of(await world.open(headers={"Content-Length": "19"})) == b"own"
    assert world.went == ["a", "b", router.OWN]
    assert world.asked == [frozenset(), frozenset({"a"})]
    assert world.failures == {"a": PeerFailureReason.REFUSED, "b": PeerFailureReason.CONNECTION}
    assert silent.ending == "closed"
    assert world.times_sent == 3
    assert world.request.headers == {"Content-Length": "19"}, "each try starts from the client's own"


async def test_two_peers_are_enough_also_where_the_own_engine_fails_too() -> None:
    order = ["a", "b", "c"]
    gone = errors.UnavailableError("not there")
    world = World(order=order, peers=dict.fromkeys(order, REFUSED), engine=gone)
    with pytest.raises(errors.UnavailableError) as caught:
        await world.open()
    assert caught.value is gone
    assert world.went == ["a", "b", router.OWN]


async def test_after_the_first_byte_nothing_is_repeated() -> None:
    world = World(order=["a", "b"], peers={"a": scripted.Response(b"some", OSError()), "b": whole()})
    under_way = await world.open()
    assert await under_way.read() == b"some"
    with pytest.raises(answers.BrokenOffError):
        await under_way.read()
    under_way.close()
    assert (world.went, world.failures) == (["a"], {})


@pytest.mark.parametrize(
    "engine",
    [
        errors.UnavailableError("not there"),
        errors.EngineUnreachableError("broke off"),
        scripted.Response(aiohttp.ClientPayloadError()),
    ],
    ids=["takes no connection", "breaks off", "breaks off after its head"],
)
async def test_a_peer_answers_for_an_own_engine_that_is_not_there(engine: Going) -> None:
    world = World(order=[router.OWN, "a"], peers={"a": whole(b"from a")}, engine=engine)
    under_way = await world.open()
    assert await text_of(under_way) == b"from a"
    assert world.asked == [frozenset(), frozenset({router.OWN})]
    assert world.went == [router.OWN, "a"]
    assert world.ticket.closings == [None], "its place in the own engine's line is free again"
    assert world.times_sent == 2


async def test_with_nobody_else_the_own_engines_failure_is_told() -> None:
    gone = errors.EngineUnreachableError("gone")
    for order in ([], [router.OWN, "a"]):
        world = World(order=order, peers={"a": REFUSED}, engine=gone)
        with pytest.raises(errors.EngineUnreachableError) as caught:
            await world.open()
        assert caught.value is gone
        assert world.ticket.closings == [None]


@pytest.mark.parametrize("status", [502, 503])
async def test_a_peer_answers_for_an_own_engine_that_says_not_now(status: int) -> None:
    own = whole(b"no", status)
    world = World(order=[router.OWN, "a"], peers={"a": whole(b"from a")}, engine=own)
    assert await text_of(await world.open()) == b"from a"
    assert own.ending == "closed"
    assert world.ticket.closings == [None]


@pytest.mark.parametrize("status", [400, 429, 500, 504])
async def test_any_other_status_is_the_answer(status: int) -> None:
    world = World(order=[router.OWN, "a"], engine=whole(b"as it is", status))
    under_way = await world.open()
    assert (under_way.status, await text_of(under_way)) == (status, b"as it is")
    assert world.went == [router.OWN]


@pytest.mark.parametrize("order", [[], [router.OWN, "a"]], ids=["alone", "a peer that refuses"])
async def test_with_nobody_else_the_engines_own_503_is_passed_on_whole(order: list[str]) -> None:
    own = whole(b"its reason", 503)
    world = World(order=order, peers={"a": REFUSED}, engine=own)
    under_way = await world.open()
    assert own.ending == ""
    assert (under_way.status, await text_of(under_way)) == (503, b"its reason")
    assert under_way.ticket is world.ticket


async def test_a_refusal_of_admission_is_final_and_nothing_was_sent() -> None:
    refusal = errors.ObjectiveUnreachableError("later", retry_after_s=3)
    world = World(order=[router.OWN, "a"], refusal=refusal)
    with pytest.raises(errors.ObjectiveUnreachableError) as caught:
        await world.open()
    assert caught.value is refusal
    assert (world.went, world.times_sent) == ([], 0)


async def test_a_client_that_leaves_before_the_first_byte_gives_up_the_engines_work() -> None:
    waiting = scripted.Response()
    world = World(engine=waiting, order=[router.OWN, "a"])
    opening = asyncio.create_task(world.open())
    await until_waiting(waiting)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert waiting.ending == "closed"
    assert world.ticket.closings == [None]
    assert world.went == [router.OWN], "nobody else is asked for who is gone"


async def test_a_client_that_leaves_while_a_peer_computes_gives_up_that_work() -> None:
    waiting = scripted.Response()
    world = World(order=["a", "b"], peers={"a": waiting, "b": whole()}, engine=whole())
    opening = asyncio.create_task(world.open())
    await until_waiting(waiting)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert waiting.ending == "closed"
    assert (world.went, world.failures) == (["a"], {}), "no fault of the peer's"


async def test_a_client_that_leaves_while_a_peer_is_asked_after_all_frees_both() -> None:
    own, waiting = whole(b"no", 503), scripted.Response()
    world = World(order=[router.OWN, "a"], peers={"a": waiting}, engine=own)
    opening = asyncio.create_task(world.open())
    await until_waiting(waiting)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (own.ending, waiting.ending) == ("closed", "closed")
    assert world.ticket.closings == [None]


async def test_a_mistake_of_ours_on_the_way_out_frees_the_place_in_the_line() -> None:
    world = World(engine=whole())

    def body_for(body: bytes, priority: int, tenant: str) -> bytes:
        raise ValueError("a mistake")

    world.body_for = body_for  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="a mistake"):
        await world.open()
    assert world.ticket.closings == [None]
