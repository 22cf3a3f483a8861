import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from firsttoken_sidecar import upload
from sidecar import fakes

CHUNKED = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_request_body_streams_up_before_it_is_complete() -> None:
    got_first = asyncio.Event()
    bodies = []

    async def slurp(request: web.Request) -> web.Response:
        async for piece in request.content.iter_any():
            bodies.append(piece)
            got_first.set()
        return web.Response(text="ok")

    engine = fakes.FakeEngine()
    application = web.Application()
    application.router.add_post("/v1/x", slurp)
    engine.api_port = await engine._listen(application, 0)
    engine.ops_port = await engine._listen(engine._ops(), 0)
    try:
        async with fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
            writer.write(CHUNKED + b"3\r\nabc\r\n")
            async with asyncio.timeout(2):
                await got_first.wait()
            writer.write(b"2\r\nde\r\n0\r\n\r\n")
            assert b"200 OK" in await reader.readline()
    finally:
        await engine.stop()
    assert b"".join(bodies) == b"abcde"


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_body_past_the_limit_is_refused(is_chunked: bool) -> None:
    async with fakes.engine() as engine, fakes.beside(engine, MAX_BODY_BYTES="100000") as sidecar:

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b"x" * 10000

        data = pieces() if is_chunked else b"x" * 100001
        async with sidecar.client.post(sidecar.url("/v1/x"), data=data) as response:
            assert response.status == 413
            error = (await response.json())["error"]
            assert error["code"] == "request_too_large"
            assert "100000 bytes" in error["message"]
        assert not [seen for seen in engine.seen if seen.body], "never passed on whole"
        async with sidecar.client.post(sidecar.url("/v1/x"), data=b"x" * 100000) as response:
            assert response.status == 200


@pytest.mark.parametrize("rest", [b"", b"zz\r\n"])
async def test_a_body_that_stops_or_is_malformed_is_refused(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "SILENCE_S", 0.3)
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(CHUNKED + b"3\r\nabc\r\n")
        await asyncio.sleep(0.1)
        writer.write(rest)
        async with asyncio.timeout(2):
            status = await reader.readline()
        assert status.split()[1] in (b"408", b"400")
        assert engine.seen[-1].body == b"", "never passed on whole"
        assert (await sidecar.state()).in_flight == 0


@pytest.mark.parametrize("target", ["/v1/x", "/v1/completions"])
async def test_a_body_that_trickles_is_refused(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silent for long, and yet it would take for ever."""
    monkeypatch.setattr(upload, "SLOW_AFTER_S", 0.3)
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode())
        answer = asyncio.create_task(reader.readline())
        for _ in range(60):
            writer.write(b"x")
            await asyncio.sleep(0.05)
            if answer.done():
                break
        assert (await asyncio.wait_for(answer, 2)).split()[1] == b"408"
        await sidecar.until(lambda state: state.in_flight == 0)
        assert not [seen for seen in engine.seen if seen.body], "never passed on whole"


async def push(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size // 2**20):
        writer.write(b"x" * 2**20)
        await writer.drain()


async def test_back_pressure_stops_the_client() -> None:
    """An engine that does not read must not make the sidecar swallow the body."""

    async def ignore(request: web.Request) -> web.Response:
        await is_over.wait()
        return web.Response()

    is_over = asyncio.Event()
    engine = fakes.FakeEngine()
    application = web.Application()
    application.router.add_post("/v1/x", ignore)
    engine.api_port = await engine._listen(application, 0)
    engine.ops_port = await engine._listen(engine._ops(), 0)
    size = 64 * 2**20
    try:
        async with fakes.beside(engine, MAX_BODY_BYTES=str(size)) as sidecar, sidecar.raw() as (_, writer):
            writer.write(f"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
            pushing = asyncio.create_task(push(writer, size))
            await asyncio.sleep(0.5)
            assert not pushing.done()
            pushing.cancel()
            is_over.set()
            writer.transport.abort()
    finally:
        await engine.stop()


async def test_a_client_that_leaves_in_its_body_is_no_engine_error() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with sidecar.raw() as (_, writer):
            writer.write(CHUNKED + b"3\r\nabc\r\n")
            await fakes.until(lambda: engine.seen)
        await sidecar.until(lambda state: state.in_flight == 0)
        async with sidecar.client.get(sidecar.ops("/metrics")) as response:
            text = await response.text()
        assert "firsttoken_client_disconnects_total 1.0" in text
        assert 'firsttoken_engine_errors_total{reason="before_answer"} 0.0' in text
        assert engine.seen[-1].body == b"", "never passed on whole"
