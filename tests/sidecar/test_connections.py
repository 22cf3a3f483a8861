import asyncio
import json

import pytest
from aiohttp import web

from firsttoken_sidecar import connections, metrics, servers
from sidecar import fakes

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def hello(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(text="hi")


async def serve() -> servers.Server:
    application = web.Application()
    application.router.add_route("*", "/", hello)
    return await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )


async def answer_to(pieces: list[bytes], pause_s: float = 0.0) -> bytes:
    """All that comes back until the server hangs up."""
    server = await serve()
    try:
        async with fakes.raw(server.port) as (reader, writer):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            async with asyncio.timeout(5):
                return await reader.read()
    finally:
        await server.close()


def error_of(answer: bytes) -> dict[str, object]:
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"no colon\r\n\r\n",
        b"x" * 9000 + b"\r\n\r\n",
        HEAD + b"A: " + b"b" * 9000 + b"\r\n\r\n",
        HEAD + b"".join(b"H%d: v\r\n" % i for i in range(101)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_what_is_not_http_gets_our_form_and_an_end(head: bytes) -> None:
    answer = await answer_to([head])
    assert answer.split()[1] == b"400"
    assert error_of(answer)["type"] == "invalid_request_error"


async def test_ninety_headers_are_no_bomb() -> None:
    head = HEAD + b"".join(b"H%d: v\r\n" % i for i in range(90)) + b"Connection: close\r\n\r\n"
    assert (await answer_to([head])).startswith(b"HTTP/1.1 200 ")


async def test_a_head_without_end_is_refused_when_it_is_too_large() -> None:
    line = b"X-Long: " + b"v" * 6000 + b"\r\n"
    answer = await answer_to([HEAD] + [line] * 6, pause_s=0.01)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "32768 bytes" in str(error_of(answer)["message"])


async def test_a_head_that_trickles_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.2)
    answer = await answer_to([b"G", b"E", b"T"], pause_s=0.05)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert error_of(answer)["code"] == "request_timeout"


async def test_the_time_of_a_head_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.3)
    server = await serve()
    async with fakes.raw(server.port) as (reader, writer):
        for _ in range(3):
            writer.write(HEAD)
            await asyncio.sleep(0.1)
            writer.write(b"\r\n")
            assert await reader.readuntil(b"hi")
        await asyncio.sleep(0.4)
        writer.write(HEAD + b"\r\n")
        assert await reader.readuntil(b"hi"), "idle is not late"
    await server.close()


async def test_a_large_body_in_pieces_is_no_head() -> None:
    size = 3 * connections.MOST_HEAD_BYTES
    head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n".encode()
    answer = await answer_to([head] + [b"x" * (size // 3)] * 3, pause_s=0.01)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    server = await serve()
    async with fakes.raw(server.port) as (silent, _), fakes.raw(server.port) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        await reader.readuntil(b"hi")
        async with asyncio.timeout(3):
            assert await reader.read() == b""
            assert await silent.read() == b""
    assert len(server.connections) == 0
    await server.close()


async def test_beyond_the_limit_the_longest_idle_one_goes() -> None:
    server = await serve()
    server.connections._most = 2
    refusals = server.connections._counts.refusals
    async with (
        fakes.raw(server.port) as (first, first_writer),
        fakes.raw(server.port) as (second, second_writer),
    ):
        for reader, writer in ((second, second_writer), (first, first_writer)):
            writer.write(HEAD + b"\r\n")
            await reader.readuntil(b"hi")
        async with fakes.raw(server.port) as (third, third_writer):
            third_writer.write(HEAD + b"\r\n")
            await third.readuntil(b"hi")
            async with asyncio.timeout(2):
                assert await second.read() == b""
            first_writer.write(HEAD + b"\r\n")
            assert await first.readuntil(b"hi"), "used later, so it stays"
    assert refusals[metrics.RefusalReason.CONNECTIONS] == 1
    await server.close()


async def test_when_all_are_at_work_the_new_one_goes() -> None:
    is_over = asyncio.Event()

    async def work(request: web.Request) -> web.Response:
        await is_over.wait()
        return web.Response(text="done")

    application = web.Application()
    application.router.add_get("/", work)
    server = await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )
    server.connections._most = 1
    async with fakes.raw(server.port) as (busy, writer):
        writer.write(HEAD + b"\r\n")
        await fakes.until(lambda: [each for each in server.connections._open if not each.is_idle])
        async with fakes.raw(server.port) as (refused, _), asyncio.timeout(2):
            assert await refused.read() == b""
        is_over.set()
        assert await busy.readuntil(b"done")
    await server.close()


async def test_a_handler_that_breaks_is_an_internal_error_without_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: web.Request) -> web.Response:
        raise KeyError("inner workings")

    application = web.Application()
    application.router.add_get("/", broken)
    server = await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )
    async with fakes.raw(server.port) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        answer = await reader.read()
    await server.close()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert error_of(answer)["code"] == "internal_error"
    assert b"inner workings" not in answer
    assert "inner workings" in caplog.text
