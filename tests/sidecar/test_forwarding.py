"""The hop as a peer sees it, and every way in which it can fail before the first byte."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from firsttoken_api import names
from firsttoken_api.state import SidecarState
from firsttoken_sidecar import arrivals, caller, forwarding, hop, inspection, peer
from firsttoken_sidecar.route_counts import PeerFailureReason
from sidecar import fakes

OWN, THERE = "127.0.0.11", "127.0.0.12"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def arrival(age_s: float = 0.0) -> arrivals.Arrival:
    return arrivals.Arrival(
        request_id="1",
        arrival_s=time.monotonic() - age_s,
        caller=caller.ANONYMOUS,
        inspected=inspection.Inspected(body=b"{}"),
        client="somebody",
    )


@contextlib.asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[int]:
    """A peer that answers so; the port."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, THERE, 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def forwarding_to(port: int) -> AsyncIterator[forwarding.Forwarding]:
    async with forwarding.session(OWN) as session:
        yield forwarding.Forwarding(session, lambda: port, time.monotonic)


async def send(
    forward: forwarding.Forwarding, to: peer.Peer | None = None, headers: dict[str, str] | None = None
) -> aiohttp.ClientResponse:
    return await forward.send(
        to or peer.Peer(THERE),
        "POST",
        "/v1/chat/completions?a=%20b",
        CIMultiDict(headers or {}),
        b'{"stream": true}',
        arrival(age_s=0.25),
    )


async def test_the_peer_gets_what_the_client_sent_and_the_hop() -> None:
    seen: list[tuple[str | None, str, dict[str, str], bytes]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.remote, request.raw_path, dict(request.headers), await request.read()))
        return web.Response(text="hello", headers={"X-From": "there"})

    async with answering(handler) as port, forwarding_to(port) as forward:
        sent = {"Authorization": "Bearer secret", names.HEADER_HOP: "1;age_ms=1"}
        answer = await send(forward, headers=sent)
        assert answer.status == 200
        assert answer.headers["X-From"] == "there"
        assert await answer.read() == b"hello"
    ((remote, path, headers, body),) = seen
    assert remote == OWN
    assert path == "/v1/chat/completions?a=%20b"
    assert body == b'{"stream": true}'
    assert headers["Authorization"] == "Bearer secret"
    assert "User-Agent" not in headers
    age_s = hop.age_s(headers[names.HEADER_HOP])
    assert age_s is not None
    assert 0.25 <= age_s < 5.0


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, PeerFailureReason.REFUSED),
        (403, PeerFailureReason.REFUSED),
        (429, PeerFailureReason.REFUSED),
        (502, PeerFailureReason.ENGINE),
        (503, PeerFailureReason.UNAVAILABLE),
    ],
)
async def test_an_answer_that_says_not_here_is_a_failure(status: int, reason: PeerFailureReason) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with answering(handler) as port, forwarding_to(port) as forward:
        with pytest.raises(forwarding.PeerFailedError) as caught:
            await send(forward)
    assert caught.value.reason is reason
    assert caught.value.is_its_fault == (status > 500)


@pytest.mark.parametrize("status", [200, 400, 404, 413, 500])
async def test_any_other_status_is_the_answer(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with answering(handler) as port, forwarding_to(port) as forward:
        answer = await send(forward)
        assert answer.status == status
        answer.release()


async def test_the_request_counts_as_waiting_there_until_its_answer_begins() -> None:
    there = peer.Peer(THERE)
    asked = arrival()
    waiting: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        waiting.append(there.unseen_tokens())
        return web.Response(text="x")

    there.sent(id(asked), 77, 0.0)
    async with answering(handler) as port, forwarding_to(port) as forward:
        answer = await forward.send(there, "POST", "/v1/completions", CIMultiDict[str](), b"{}", asked)
        answer.release()
    assert waiting == [77]
    assert there.unseen_tokens() == 0


async def test_nobody_there_is_a_failure() -> None:
    async def handler(request: web.Request) -> web.Response:
        raise AssertionError("nobody should ask")

    async with answering(handler) as port:
        pass
    async with forwarding_to(port) as forward:
        with pytest.raises(forwarding.PeerFailedError) as caught:
            await send(forward)
    assert caught.value.reason is PeerFailureReason.CONNECTION
    assert caught.value.is_its_fault


async def test_a_connection_that_ends_before_the_answer_is_a_failure() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with answering(handler) as port, forwarding_to(port) as forward:
        with pytest.raises(forwarding.PeerFailedError) as caught:
            await send(forward)
    assert caught.value.reason is PeerFailureReason.CONNECTION


class Silent:
    """A peer that takes a request and says nothing."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return web.Response()


async def test_a_peer_that_goes_silent_is_not_waited_for() -> None:
    silent = Silent()
    there = peer.Peer(THERE)
    there.seen(SidecarState(ready=True), None, 0.0, 0.0)
    async with answering(silent.answer) as port, forwarding_to(port) as forward:
        sending = asyncio.create_task(send(forward, there))
        await silent.arrived.wait()
        there.failed(peer.SILENT_S)
        with pytest.raises(forwarding.PeerFailedError) as caught:
            await sending
        assert caught.value.reason is PeerFailureReason.SILENT
        await asyncio.wait_for(silent.left.wait(), 5.0)


async def test_a_client_that_leaves_is_told_to_the_peer() -> None:
    silent = Silent()
    async with answering(silent.answer) as port, forwarding_to(port) as forward:
        sending = asyncio.create_task(send(forward))
        await silent.arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(silent.left.wait(), 5.0)


async def test_connections_are_kept() -> None:
    remotes: set[tuple[str, int]] = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        remotes.add(request.transport.get_extra_info("peername"))
        return web.Response(text="x")

    async with answering(handler) as port, forwarding_to(port) as forward:
        for _ in range(5):
            await (await send(forward)).read()
    assert len(remotes) == 1


async def test_an_unused_wait_is_left_to_nobody() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="x")

    there = peer.Peer(THERE)
    async with answering(handler) as port, forwarding_to(port) as forward:
        before = len(asyncio.all_tasks())
        for _ in range(3):
            await (await send(forward, there)).read()
        await fakes.until(lambda: len(asyncio.all_tasks()) <= before + 1)
