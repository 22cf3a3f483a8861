import asyncio
import gzip
import json
import time

import aiohttp
import pytest
from aiohttp import web

from firsttoken_sidecar import proxy
from sidecar import fakes

CHAT = b'{"stream": true, "messages": []}'


def raw_request(target: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def test_the_stream_equals_the_engines_byte_for_byte() -> None:
    async with fakes.engine(tokens=50) as engine, fakes.beside(engine) as sidecar:
        response = await sidecar.chat()
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert await response.read() == engine.sent_bytes()


async def test_each_chunk_is_written_as_it_comes() -> None:
    async with (
        fakes.engine(tokens=3, token_s=0.3, first_token_s=0.3) as engine,
        fakes.beside(engine) as sidecar,
    ):
        started = time.monotonic()
        async with await sidecar.chat() as response:
            assert time.monotonic() - started < 0.25, "headers do not wait for content"
            arrivals = []
            async for line in response.content:
                if b"ken" in line and b"data" in line:
                    arrivals.append(time.monotonic() - started)
    assert arrivals == pytest.approx([0.3, 0.6, 0.9], abs=0.2)


async def test_ttft_ends_at_the_first_content_not_at_the_role() -> None:
    async with fakes.engine(first_token_s=0.3) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            await response.read()
        window = (await sidecar.state()).ttft
    assert window is not None
    assert sum(window.counts) == 1
    index = window.counts.index(1)
    assert window.edges_s[index - 1] < 0.36
    assert window.edges_s[index] >= 0.3


async def test_an_answer_in_one_piece_is_timed_too() -> None:
    async with fakes.engine(first_token_s=0.1) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat(stream=False) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "Paris"
        state = await sidecar.state()
    assert state.ttft is not None
    assert sum(state.ttft.counts) == 1
    assert state.arrivals_total == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_the_engines_request(stream: bool) -> None:
    async with (
        fakes.engine(tokens=100, token_s=0.1, first_token_s=5.0 if not stream else 0.0) as engine,
        fakes.beside(engine) as sidecar,
    ):
        body = json.dumps({"stream": stream}).encode()
        async with sidecar.raw() as (reader, writer):
            writer.write(raw_request("/v1/chat/completions", body, f"Content-Length: {len(body)}"))
            if stream:
                await reader.readuntil(b"ken1")
            else:
                await fakes.until(lambda: engine.seen)
            left = time.monotonic()
            writer.close()
            async with asyncio.timeout(2):
                await engine.cancelled.wait()
            assert time.monotonic() - left < 0.5
            assert engine.seen[0].was_cancelled
            await sidecar.until(lambda state: state.in_flight == 0)
            async with sidecar.client.get(sidecar.ops("/metrics")) as response:
                assert "firsttoken_client_disconnects_total 1.0" in await response.text()


async def test_a_client_that_closes_its_sending_half_has_left() -> None:
    """It cannot be told from one that is gone, and computing for those costs the others."""
    async with (
        fakes.engine(tokens=100, token_s=0.1) as engine,
        fakes.beside(engine) as sidecar,
        sidecar.raw() as (reader, writer),
    ):
        writer.write(raw_request("/v1/chat/completions", CHAT, f"Content-Length: {len(CHAT)}"))
        await reader.readuntil(b"ken1")
        writer.write_eof()
        async with asyncio.timeout(2):
            await engine.cancelled.wait()


async def test_back_pressure_stops_the_engine() -> None:
    """A client that does not read must not make the sidecar swallow the answer."""
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(2000):
            await answer.write(b"x" * 65536)
            written += 65536
        return answer

    engine = fakes.FakeEngine()
    application = web.Application()
    application.router.add_get("/v1/flood", flood)
    engine.api_port = await engine._listen(application, 0)
    engine.ops_port = await engine._listen(engine._ops(), 0)
    try:
        async with fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
            writer.write(raw_request("/v1/flood", b"", method="GET"))
            await reader.read(10)
            before = -1
            async with asyncio.timeout(5):
                while written != before:
                    before = written
                    await asyncio.sleep(0.2)
            assert written < 32 * 2**20, "of 125 MB"
            writer.transport.abort()
    finally:
        await engine.stop()


async def test_headers_and_body_reach_the_engine_unchanged() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        packed = gzip.compress(b"hello")
        headers = {"Content-Encoding": "gzip", "Authorization": "Bearer k", "X-Firsttoken-Tenant": "root"}
        async with sidecar.client.post(
            sidecar.url("/v1/x%2Fy?a=%20b&c"), data=packed, headers=headers
        ) as response:
            assert await response.read() == packed
            assert response.headers["X-Path"] == "/v1/x%2Fy?a=%20b&c"
        seen = engine.seen[-1]
    assert seen.body == packed
    got = dict(seen.headers)
    assert got["Authorization"] == "Bearer k"
    assert got["Content-Encoding"] == "gzip"
    assert got["Content-Length"] == str(len(packed))
    assert got["Host"] == sidecar.url("/").authority
    assert "X-Firsttoken-Tenant" not in got
    assert "Transfer-Encoding" not in got


async def test_nothing_is_added_for_the_engine_but_the_request_id() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(raw_request("/v1/models", b"", method="GET"))
        await reader.readline()
        assert [name.lower() for name, _ in engine.seen[-1].headers] == ["host", "x-request-id"]


async def test_an_upgrade_that_nobody_wants_is_a_plain_request() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        head = (
            "Connection: Upgrade, HTTP2-Settings",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABk",
            "Content-Length: 2",
        )
        writer.write(raw_request("/v1/x", b"hi", *head))
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert engine.seen[-1].body == b"hi"


async def test_an_old_client_gets_the_stream_without_chunks() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(CHAT)}\r\n\r\n".encode()
        writer.write(head + CHAT)
        answer = await reader.read()
        assert answer.partition(b"\r\n\r\n")[2] == engine.sent_bytes()


async def test_head_keeps_the_length_and_has_no_body() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        response = await sidecar.client.head(sidecar.url("/v1/models"))
        assert response.status == 200
        assert await response.read() == b""


async def test_an_engine_that_dies_in_mid_stream_ends_it_with_an_error_event() -> None:
    async with fakes.engine(tokens=5, break_after=2) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            received = await response.read()
        assert received.startswith(engine.sent_bytes()[:40])
        events = received.split(b"\n\n")
        error = json.loads(events[-2].removeprefix(b"data: "))["error"]
        assert error["type"] == "server_error"
        assert events[-1] == b""
        assert b"[DONE]" not in received
        async with sidecar.client.get(sidecar.ops("/metrics")) as metrics:
            assert 'firsttoken_engine_errors_total{reason="mid_answer"} 1.0' in await metrics.text()


async def raw_engine(answer: bytes) -> asyncio.Server:
    """An API port that answers these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, fakes.LOOPBACK, 0)


async def ask_raw_engine(answer: bytes, *headers: str) -> bytes:
    """What a client of the sidecar gets to see, down to the bytes of HTTP."""
    server = await raw_engine(answer)
    async with server, fakes.engine() as engine:
        engine.api_port = server.sockets[0].getsockname()[1]
        async with fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
            writer.write(raw_request("/v1/models", b"", *headers, method="GET"))
            async with asyncio.timeout(3):
                return await reader.read()


async def test_a_body_that_was_cut_does_not_look_complete() -> None:
    received = await ask_raw_engine(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    assert b"Content-Length: 10" in received
    assert received.endswith(b"\r\n\r\nabc")
    received = await ask_raw_engine(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    assert received.endswith(b"3\r\nabc\r\n"), "no last chunk"


async def test_an_error_event_does_not_run_into_half_an_event() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    received = await ask_raw_engine(head + b'9\r\ndata: {"a\r\n')
    assert b'\n\ndata: {"error"' in received


async def test_an_engine_that_hangs_up_without_an_answer_is_a_502() -> None:
    received = await ask_raw_engine(b"", "Connection: close")
    assert received.startswith(b"HTTP/1.1 502")
    assert b'"code": "engine_unreachable"' in received


async def test_a_request_waits_a_little_for_an_engine_that_comes() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        await engine.stop()
        asking = asyncio.create_task(sidecar.chat(stream=False))
        await asyncio.sleep(0.3)
        await engine.start()
        async with await asking as response:
            assert response.status == 200


async def test_without_an_engine_the_answer_is_503_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "ENGINE_WAIT_S", 0.2)
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        await engine.stop()
        async with await sidecar.chat() as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "1"
            assert (await response.json())["error"]["code"] == "unavailable"
        async with sidecar.client.get(sidecar.ops("/livez")) as response:
            assert response.status == 200


async def test_one_clients_cookies_never_reach_another() -> None:
    async def bake(request: web.Request) -> web.Response:
        return web.Response(headers={"Set-Cookie": "who=me", "X-Got": request.headers.get("Cookie", "")})

    engine = fakes.FakeEngine()
    application = web.Application()
    application.router.add_get("/v1/x", bake)
    engine.api_port = await engine._listen(application, 0)
    engine.ops_port = await engine._listen(engine._ops(), 0)
    try:
        async with (
            fakes.beside(engine) as sidecar,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        ):
            for _ in range(2):
                async with client.get(sidecar.url("/v1/x")) as response:
                    assert response.headers["Set-Cookie"] == "who=me"
                    assert response.headers["X-Got"] == ""
    finally:
        await engine.stop()


async def test_concurrent_streams_do_not_mix() -> None:
    async def numbered(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for _ in range(20):
            await answer.write(f"data: {request.query['n']}\n\n".encode())
            await asyncio.sleep(0.005)
        return answer

    engine = fakes.FakeEngine()
    application = web.Application()
    application.router.add_get("/v1/n", numbered)
    engine.api_port = await engine._listen(application, 0)
    engine.ops_port = await engine._listen(engine._ops(), 0)

    async def ask(sidecar: fakes.Beside, n: int) -> bytes:
        async with sidecar.client.get(sidecar.url(f"/v1/n?n={n}")) as response:
            return await response.read()

    try:
        async with fakes.beside(engine) as sidecar:
            answers = await asyncio.gather(*(ask(sidecar, n) for n in range(40)))
    finally:
        await engine.stop()
    assert answers == [f"data: {n}\n\n".encode() * 20 for n in range(40)]


async def test_an_error_is_no_first_token() -> None:
    async with fakes.engine(status=400) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            assert (response.status, await response.json()) == (400, {"error": {"message": "no"}})
        state = await sidecar.state()
        assert state.ttft is not None
        assert (state.arrivals_total, sum(state.ttft.counts)) == (1, 0)
        async with sidecar.client.get(sidecar.ops("/metrics")) as metrics:
            assert 'firsttoken_undecided_total{class=""} 1.0' in await metrics.text()
