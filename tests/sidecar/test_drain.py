import asyncio
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firsttoken_sidecar import drain
from firsttoken_sidecar.drain import Stage
from sidecar import fakes


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ft-") as name:
        yield Path(name) / "drain.sock"


def mode(socket: Path) -> int | None:
    """Permission bits; None when there is no such file."""
    return stat.S_IMODE(socket.stat().st_mode) if socket.exists() else None


async def test_stages_follow_each_other() -> None:
    refusing_at: list[Stage] = []
    draining = drain.Drain(0.1, 5, drain.OpenRequests(), lambda: refusing_at.append(draining.stage))
    assert (draining.is_draining, draining.is_refusing) == (False, False)
    waiting = asyncio.create_task(draining.drained())
    await asyncio.sleep(0.02)
    assert (draining.stage, draining.is_draining, draining.is_refusing) == (Stage.DEREGISTERING, True, False)
    await waiting
    assert (draining.stage, draining.is_draining, draining.is_refusing) == (Stage.DRAINED, True, True)
    assert refusing_at == [Stage.REFUSING]


async def test_it_waits_for_open_requests() -> None:
    requests = drain.OpenRequests()
    draining = drain.Drain(0, 5, requests)
    with requests:
        with requests:
            waiting = asyncio.create_task(draining.drained())
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert draining.stage is Stage.REFUSING
    await asyncio.wait_for(waiting, 1)


async def test_it_gives_up_at_the_timeout() -> None:
    requests = drain.OpenRequests()
    draining = drain.Drain(0, 0.1, requests)
    with requests:
        started = time.monotonic()
        await draining.drained()
        assert 0.09 < time.monotonic() - started < 0.4


async def test_another_engine_in_the_pod_ends_a_drain_that_is_done() -> None:
    draining = drain.Drain(0.05, 5, drain.OpenRequests())
    waiting = asyncio.create_task(draining.drained())
    await asyncio.sleep(0.01)
    draining.resume()
    assert draining.is_draining, "the engine that drains may be loading still"
    await waiting
    draining.resume()
    assert (draining.stage, draining.is_draining, draining.is_refusing) == (Stage.SERVING, False, False)
    await draining.drained()
    assert draining.stage is Stage.DRAINED


async def test_many_may_ask_and_one_may_leave() -> None:
    refusals: list[int] = []
    draining = drain.Drain(0.15, 5, drain.OpenRequests(), lambda: refusals.append(1))
    first = asyncio.create_task(draining.drained())
    await asyncio.sleep(0.05)
    first.cancel()
    await draining.drained()
    await draining.drained()
    assert refusals == [1]


async def test_the_socket_answers_when_all_is_done(socket: Path) -> None:
    requests = drain.OpenRequests()
    draining = drain.Drain(0, 5, requests)
    async with drain.DrainSocket(socket, draining):
        assert mode(socket) == drain.SOCKET_MODE
        with requests:
            asking = asyncio.create_task(fakes.ask_to_drain(socket))
            await asyncio.sleep(0.05)
            assert not asking.done()
        assert await asking == b"drained\n"
        assert await fakes.ask_to_drain(socket) == b"drained\n", "asked again"
    assert mode(socket) is None


@pytest.mark.parametrize(
    ("request_bytes", "is_drain"),
    [
        (b"drain", True),
        (b"drain\r\n", True),
        (b"drai", False),
        (b"dry\n", False),
        (b"", False),
        (b"x" * 99, False),
    ],
)
async def test_what_it_understands(socket: Path, request_bytes: bytes, is_drain: bool) -> None:
    draining = drain.Drain(0, 0, drain.OpenRequests())
    async with drain.DrainSocket(socket, draining):
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(request_bytes)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 2)
        writer.close()
    assert (answer == b"drained\n") is is_drain
    assert draining.is_draining is is_drain


async def test_a_client_that_leaves_does_not_stop_the_drain(socket: Path) -> None:
    draining = drain.Drain(0.1, 5, drain.OpenRequests())
    async with drain.DrainSocket(socket, draining):
        _, writer = await asyncio.open_unix_connection(socket)
        writer.write(b"drain\n")
        await writer.drain()
        await asyncio.sleep(0.03)
        writer.close()
        await fakes.until(lambda: draining.stage is Stage.DRAINED)


async def test_a_socket_of_an_earlier_life_is_replaced(socket: Path) -> None:
    draining = drain.Drain(0, 0, drain.OpenRequests())
    left = await asyncio.start_unix_server(lambda *_: None, socket)
    async with drain.DrainSocket(socket, draining):
        assert await fakes.ask_to_drain(socket) == b"drained\n"
    left.close()


async def test_a_stream_survives_and_the_pod_leaves_in_order() -> None:
    """The whole of it, over real sockets: a 3 s stream, short requests all along, then refusal."""
    async with (
        fakes.engine(tokens=30, token_s=0.1) as engine,
        fakes.beside(engine, DEREGISTER_DELAY_S="0.8") as sidecar,
    ):
        long = await sidecar.chat()
        idle = await asyncio.open_connection(fakes.LOOPBACK, sidecar.running.http_port)
        asking = asyncio.create_task(fakes.ask_to_drain(sidecar.drain_socket))
        state = await sidecar.until(lambda state: state.draining, timeout_s=0.5)
        assert not state.ready
        started = time.monotonic()
        while time.monotonic() - started < 0.5:
            async with await sidecar.chat(stream=False) as short:
                assert (short.status, short.headers["Connection"]) == (200, "close")
        await asyncio.sleep(0.6)
        async with await sidecar.chat(stream=False) as refused:
            assert (refused.status, refused.headers["Connection"]) == (503, "close")
            assert refused.headers["Retry-After"] == "1"
            assert (await refused.json())["error"]["code"] == "draining"
        assert await asyncio.wait_for(idle[0].read(), 1) == b"", "idle connections are closed"
        idle[1].close()
        for path, status in [("/livez", 200), ("/readyz", 503), ("/engine/livez", 200)]:
            async with sidecar.client.get(sidecar.ops(path)) as answer:
                assert answer.status == status
        assert not asking.done(), "the stream goes on"
        assert await long.read() == engine.sent_bytes()
        assert await asyncio.wait_for(asking, 1) == b"drained\n"
        assert (await sidecar.state()).in_flight == 0


async def test_a_connection_whose_stream_began_before_the_drain_ends_with_it() -> None:
    async with (
        fakes.engine(tokens=6, token_s=0.1) as engine,
        fakes.beside(engine) as sidecar,
        sidecar.raw() as (reader, writer),
    ):
        body = b'{"stream": true}'
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        headers = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" not in headers.lower(), "the promise to stay"
        asking = asyncio.create_task(fakes.ask_to_drain(sidecar.drain_socket))
        rest = await asyncio.wait_for(reader.read(), 3)
        assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), "whole, then closed"
        assert await asking == b"drained\n"
