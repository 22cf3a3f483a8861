"""What comes over a connection becomes a request: since when, from whom, for what, and with which headers."""

import asyncio
import json
from collections.abc import Mapping
from unittest import mock

import pytest
from aiohttp import streams
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from firsttoken_api import errors, names
from firsttoken_sidecar import (
    auth,
    body_memory,
    dispatch,
    hop,
    inspection,
    reception,
    router,
    timing,
    trace_context,
    work,
)
from sidecar.test_inspection import SETTINGS

PEER, CLIENT = "10.0.0.7", "192.0.2.1"
PATH = "/v1/chat/completions"
LIMIT_BYTES = 2 * inspection.INSPECTED_BYTES
NOW_S = 1000.0
ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()


class Desk:
    """A reception with one peer, asked by one caller."""

    def __init__(self, caller: auth.Caller = auth.ANONYMOUS, *, is_traced: bool = False) -> None:
        keys = mock.Mock(spec=auth.Auth)
        keys.identify.return_value = caller
        routes = mock.Mock(spec=router.Router)
        routes.is_peer.side_effect = lambda address: address == PEER
        self.reception = reception.Reception(
            keys,
            routes,
            mock.Mock(spec=dispatch.Dispatch),
            timing.Ledger(),
            lambda: SETTINGS,
            max_body_bytes=LIMIT_BYTES,
            is_traced=is_traced,
        )

    async def receive(
        self,
        body: bytes = ASKED,
        headers: Mapping[str, str] | None = None,
        *,
        remote: str = CLIENT,
        length: int | None = None,
    ) -> work.Work:
        content = streams.StreamReader(
            mock.Mock(spec=BaseProtocol, _reading_paused=False), 2**16, loop=asyncio.get_running_loop()
        )
        content.feed_data(body)
        content.feed_eof()
        sent = {"Content-Length": str(len(body) if length is None else length), **(headers or {})}
        request = make_mocked_request("POST", PATH, sent, payload=content).clone(remote=remote)
        return await self.reception.receive(request, "request-1", NOW_S)

    @property
    def held_bytes(self) -> int:
        return body_memory.BODIES_BYTES - self.reception._memory.left_bytes


async def test_a_client_s_request() -> None:
    desk = Desk()
    received = await desk.receive()
    arrival, going = received.arrival, received.request
    assert (arrival.request_id, arrival.arrival_s, arrival.client) == ("request-1", NOW_S, CLIENT)
    assert arrival.caller is auth.ANONYMOUS
    assert not arrival.is_forwarded
    assert arrival.inspected.body == ASKED
    assert (arrival.inspected.model, arrival.inspected.request_class) == ("m", "live")
    assert (going.method, str(going.target)) == ("POST", PATH)
    assert going.headers[names.HEADER_REQUEST_ID] == "request-1"
    assert going.headers[names.HEADER_TIMING] == "stamps", "whoever answers says where its time went"
    assert trace_context.HEADER not in going.headers
    assert desk.held_bytes == len(ASKED)
    received.give_up_body()
    assert desk.held_bytes == 0


async def test_what_a_peer_sends_on_has_arrived_before() -> None:
    received = await Desk().receive(headers={names.HEADER_HOP: hop.value(2.5)}, remote=PEER)
    assert received.arrival.is_forwarded
    assert received.arrival.arrival_s == pytest.approx(NOW_S - 2.5)
    assert names.HEADER_HOP not in received.request.headers


@pytest.mark.parametrize(("remote", "said"), [(CLIENT, hop.value(2.5)), (PEER, "1;age_ms=soon"), (PEER, "")])
async def test_nobody_else_is_believed_to_be_a_peer(
    remote: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    received = await Desk().receive(headers={names.HEADER_HOP: said}, remote=remote)
    assert not received.arrival.is_forwarded
    assert received.arrival.arrival_s == NOW_S
    assert names.HEADER_HOP not in received.request.headers, "no peer takes it for one either"
    assert "hop header of no peer dropped" in caplog.text


async def test_a_key_is_whom_a_request_is_from_and_may_lower_its_class() -> None:
    desk = Desk(auth.Caller("office", "acme", max_class="batch"))
    received = await desk.receive(headers={names.HEADER_CLASS: "live"})
    assert received.arrival.client == "office"
    assert received.arrival.inspected.request_class == "batch"
    assert received.request.headers[names.HEADER_CLASS] == "batch", "the engine does not see what it may not"


async def test_tenants_share_no_prefix() -> None:
    long = json.dumps({"prompt": "x" * 2000}).encode()
    keys = [
        (await Desk(auth.Caller(name, name)).receive(long)).arrival.inspected.prefix_keys
        for name in ("a", "b")
    ]
    assert len(keys[0]) == 3
    assert not set(keys[0]) & set(keys[1])


async def test_a_trace_begins_here_only_where_there_is_none() -> None:
    desk = Desk(is_traced=True)
    begun = (await desk.receive()).request.headers
    assert trace_context.sampled_trace_id(begun)
    theirs = f"00-{'a' * 32}-{'b' * 16}-00"
    assert (await desk.receive(headers={trace_context.HEADER: theirs})).request.headers[
        "traceparent"
    ] == theirs


async def test_a_large_body_is_not_looked_into_and_goes_on_whole() -> None:
    desk = Desk()
    large = b"x" * (inspection.INSPECTED_BYTES + 1)
    received = await desk.receive(large)
    assert received.arrival.inspected.body is None
    assert received.arrival.inspected.prompt_bytes == len(large)
    assert desk.held_bytes == 0
    assert b"".join([chunk async for chunk in received.request.upload.chunks()]) == large


async def test_a_body_past_the_limit_is_refused_before_it_is_read() -> None:
    desk = Desk()
    with pytest.raises(errors.RequestTooLargeError):
        await desk.receive(b"", length=LIMIT_BYTES + 1)
    assert desk.held_bytes == 0


async def test_what_fails_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()

    def fails(*arguments: object, **more: object) -> inspection.Inspected:
        assert desk.held_bytes == len(ASKED)
        raise ZeroDivisionError

    monkeypatch.setattr(inspection, "inspect", fails)
    with pytest.raises(ZeroDivisionError):
        await desk.receive()
    assert desk.held_bytes == 0
