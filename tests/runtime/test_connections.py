"""Idle connections go, used ones stay, and a thousand of them harm nobody."""

import asyncio
import time
from contextlib import AsyncExitStack

import psutil
import pytest
from aiohttp import ClientSession, web

from firsttoken_runtime.server import app, http
from firsttoken_runtime.server.connections import IdleConnections
from runtime.serving import serving


async def _listener(idle_s: float, most: int = 100) -> app.Listener:
    application = http.application()
    application[http.CONNECTIONS] = IdleConnections(idle_s, most)
    application.middlewares[0] = application[http.CONNECTIONS].middleware

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.6)
        return web.Response(text="late")

    application.router.add_get("/slow", slow)
    return await app.listen(application, "127.0.0.1", 0)


async def _is_closed(reader: asyncio.StreamReader, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            return await reader.read(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


async def test_a_client_that_never_sends_a_request_is_dropped():
    listener = await _listener(idle_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await _is_closed(reader, 2.0)
    writer.close()
    await listener.close()


async def test_a_head_sent_byte_by_byte_is_dropped_too():
    listener = await _listener(idle_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    closed = asyncio.create_task(_is_closed(reader, 3.0))
    for byte in b"GET /slow HTTP/1.1\r\nHost: x\r\nX-Header: ":
        if closed.done() or writer.is_closing():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.03)
    assert await closed
    writer.close()
    await listener.close()


async def test_a_request_in_progress_is_not_idle_however_long_it_takes():
    listener = await _listener(idle_s=0.1)
    async with (
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{listener.port}/slow") as response,
    ):
        assert await response.text() == "late"
    await listener.close()


async def test_beyond_the_limit_the_longest_idle_go_first():
    listener = await _listener(idle_s=60.0, most=2)
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            stack.callback(writer.close)
            readers.append(reader)
            await asyncio.sleep(0.05)
            application = listener.runner.app
            assert listener.runner.server is not None
            application[http.CONNECTIONS].close_idle(listener.runner.server, time.monotonic())
        assert await _is_closed(readers[0], 1.0)
        assert not await _is_closed(readers[2], 0.1)
    await listener.close()


async def test_a_thousand_idle_connections_cost_little_and_delay_nobody():
    async with serving() as served:
        process = psutil.Process()
        before_bytes = process.memory_info().rss
        port = int(served.url.rpartition(":")[2])
        writers = []
        for _ in range(1000):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
        grown_mib = (process.memory_info().rss - before_bytes) / 2**20
        started_s = time.monotonic()
        status, _ = await served.post("/v1/completions", {"prompt": "hi", "max_tokens": 2})
        assert status == 200
        assert time.monotonic() - started_s < 5
        assert grown_mib < 150  # both ends of them are in this process
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("is_half_closed", [True, False])
async def test_a_client_that_closes_after_its_request_frees_its_sequence(is_half_closed: bool):
    body = b'{"prompt": "abc", "max_tokens": 4000, "stream": true, "ignore_eos": true}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert await reader.readline()
        if is_half_closed:
            writer.write_eof()
        else:
            writer.close()
        async with asyncio.timeout(5):
            while await served.is_busy():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        writer.close()


async def test_a_body_that_does_not_arrive_is_a_408(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "BODY_TIMEOUT_S", 0.2)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(head)
        async with asyncio.timeout(5):
            assert b" 408 " in await reader.readline()
        writer.close()
