"""The way back to a client: what it gets, at its own pace, and what it sees of an answer that fails."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import cast

import aiohttp
import pytest
from aiohttp import web

from firsttoken_api import names
from firsttoken_sidecar import metrics, relay, stopwatch
from sidecar import fakes, scripted

STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
EVENT = b'data: {"n": 1}\n\n'
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Watched:
    """A stopwatch that takes `-` out, holds back what comes after `|` until the end, and keeps a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        self.diary.append("fed")
        passed, _, held = chunk.replace(b"-", b"").partition(b"|")
        self._held += held
        return passed

    def written(self) -> None:
        self.diary.append("written")

    def finish(self) -> bytes:
        self.diary.append("finished")
        return self._held

    def ended(self) -> None:
        self.diary.append("ended")


class Relaying:
    """A server that relays what a test says."""

    def __init__(self) -> None:
        self.counts = metrics.Counts()
        self.answers: list[scripted.Response] = []
        """For one request each, in order."""
        self.watched: Watched | None = None
        self.is_closing = False
        self.is_forwarded = False
        self.extra: dict[str, str] | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.arrived = 0
        self.returned = 0
        self.port = 0
        self.client: aiohttp.ClientSession
        self._relay = relay.Relay(self.counts)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.arrived += 1
        await self.may_go_on.wait()
        sent = await self._relay.send(
            request,
            "id-1",
            self.answers.pop(0).upstream(),
            cast(stopwatch.Stopwatch, self.watched) if self.watched is not None else None,
            is_closing=lambda: self.is_closing,
            is_forwarded=self.is_forwarded,
            extra=self.extra,
        )
        self.returned += 1
        return sent

    @property
    def broken_off(self) -> int:
        return self.counts.engine_errors[metrics.EngineErrorReason.MID_ANSWER]

    def get(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self.client.get(f"http://{fakes.LOOPBACK}:{self.port}/")

    async def bytes_of(self, request: bytes = GET) -> bytes:
        """All that comes until the end of the connection."""
        async with fakes.raw(self.port) as (reader, writer):
            writer.write(request)
            async with asyncio.timeout(5):
                return await reader.read()


@contextlib.asynccontextmanager
async def relaying(*given: scripted.Response) -> AsyncIterator[Relaying]:
    made = Relaying()
    made.answers += given
    application = web.Application()
    application.router.add_get("/", made.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, fakes.LOOPBACK, 0).start()
    made.port = runner.addresses[0][1]
    try:
        async with fakes.session() as made.client:
            yield made
    finally:
        await runner.cleanup()


async def test_the_client_gets_the_answer_and_not_what_ends_here() -> None:
    headers = STREAM | {
        "Connection": "X-Private",
        "X-Private": "1",
        "X-From": "there",
        names.HEADER_STAMPS: "{}",
    }
    answer = scripted.Response(EVENT, b": more\n\n", b"", status=201, headers=headers)
    async with relaying(answer) as at_work:
        at_work.extra = {names.HEADER_ESTIMATE: "soon"}
        async with at_work.get() as response:
            assert (response.status, response.reason) == (201, "Scripted")
            assert await response.read() == EVENT + b": more\n\n"
            got = response.headers
    assert (got["X-From"], got[names.HEADER_REQUEST_ID]) == ("there", "id-1")
    assert got[names.HEADER_ESTIMATE] == "soon"
    assert not {"X-Private", names.HEADER_STAMPS} & set(got)


async def test_a_peer_gets_the_stamps() -> None:
    async with relaying(scripted.Response(b"", headers={names.HEADER_STAMPS: "{}"})) as at_work:
        at_work.is_forwarded = True
        async with at_work.get() as response:
            assert response.headers[names.HEADER_STAMPS] == "{}"


async def test_a_connection_ends_with_its_answer_only_when_it_is_to() -> None:
    async with (
        relaying(scripted.Response(b"one", b""), scripted.Response(b"two", b"")) as at_work,
        fakes.raw(at_work.port) as (reader, writer),
        asyncio.timeout(5),
    ):
        writer.write(GET)
        assert (await reader.readuntil(b"one\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        at_work.is_closing = True
        writer.write(GET)
        last = await reader.read()
    assert b"Connection: close" in last
    assert last.endswith(b"two\r\n0\r\n\r\n")


async def test_every_chunk_is_passed_on_before_the_next_has_come() -> None:
    answer = scripted.Response()
    async with relaying(answer) as at_work, at_work.get() as response:
        for chunk in (b"one", b"two"):
            answer.put(chunk)
            async with asyncio.timeout(5):
                assert await response.content.readexactly(3) == chunk
        answer.put(b"")
        assert await response.read() == b""


async def test_what_is_taken_out_is_not_written_and_what_was_held_back_comes_at_the_end() -> None:
    async with relaying(scripted.Response(b"one-", b"--", b"two|three", b"")) as at_work:
        at_work.watched = Watched()
        async with at_work.get() as response:
            assert await response.read() == b"onetwothree"
        await fakes.until(lambda: at_work.returned)
    assert at_work.watched.diary == [*["fed", "written"] * 3, "finished", "ended"]


async def test_a_client_that_does_not_read_holds_its_engine_back_and_its_clock_open() -> None:
    """TTFT ends when the first content has been written, not when it was about to be."""
    piece = b"x" * 2**20
    answer = scripted.Response(*[piece] * 40, b"")
    async with relaying(answer) as at_work, fakes.raw(at_work.port) as (reader, writer):
        at_work.watched = watched = Watched()
        writer.write(GET)
        await reader.readexactly(10)
        before = -1
        async with asyncio.timeout(5):
            while answer.reads != before:
                before = answer.reads
                await asyncio.sleep(0.1)
        assert answer.reads < 30, "of 40 MiB"
        assert watched.diary.count("fed") == watched.diary.count("written") + 1
        async with asyncio.timeout(5):
            received = b""
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received = received[-16:] + await reader.read(2**22)
        await fakes.until(lambda: watched.diary[-1] == "ended")
        assert answer.reads == 41


async def test_who_leaves_in_mid_answer_is_counted_and_read_for_no_more() -> None:
    answer = scripted.Response(b"one")
    async with relaying(answer) as at_work:
        at_work.watched = Watched()
        async with fakes.raw(at_work.port) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"one")
            writer.transport.abort()
        for _ in range(3):
            answer.put(b"more")
        answer.put(b"")
        await fakes.until(lambda: at_work.returned)
    assert at_work.counts.disconnects == 1
    assert answer.reads < 4
    assert "ended" not in at_work.watched.diary, "it is not complete, and no sample of its pace"
    assert at_work.broken_off == 0


async def test_who_left_before_the_head_is_counted_and_nothing_is_read() -> None:
    answer = scripted.Response(b"one", b"")
    async with relaying(answer) as at_work:
        at_work.may_go_on.clear()
        async with fakes.raw(at_work.port) as (_, writer):
            writer.write(GET)
            await fakes.until(lambda: at_work.arrived)
            writer.transport.abort()
        await asyncio.sleep(0.05)
        at_work.may_go_on.set()
        await fakes.until(lambda: at_work.returned)
    assert at_work.counts.disconnects == 1


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize(
    ("came", "gap"),
    [([], b""), ([EVENT], b""), ([EVENT[:5], EVENT[5:]], b""), ([EVENT, b'data: {"n'], b"\n\n")],
    ids=["nothing", "an event", "an event in pieces", "half an event"],
)
async def test_a_stream_that_breaks_off_ends_with_an_error_that_stands_by_itself(
    came: list[bytes], gap: bytes, is_watched: bool
) -> None:
    answer = scripted.Response(*came, ConnectionResetError("secret prompt"), headers=STREAM)
    async with relaying(answer) as at_work:
        at_work.watched = watched = Watched() if is_watched else None
        received = await at_work.bytes_of(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
    body = received.partition(b"\r\n\r\n")[2]
    assert body.startswith(b"".join(came) + gap + b"data: {")
    last = body.removeprefix(b"".join(came) + gap).removeprefix(b"data: ")
    assert last.endswith(b"\n\n")
    assert set(json.loads(last)) == {"error"}
    assert b"[DONE]" not in body
    assert b"secret" not in body
    assert at_work.broken_off == 1
    assert at_work.counts.disconnects == 0
    if watched is not None:
        assert "ended" not in watched.diary


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {"Content-Type": "application/json"}), (500, STREAM), (200, {"Content-Length": "10"})],
    ids=["not a stream", "an error", "of known length"],
)
async def test_anything_else_that_breaks_off_does_not_look_complete(
    status: int, headers: dict[str, str]
) -> None:
    answer = scripted.Response(b"some", ConnectionResetError(), status=status, headers=headers)
    async with relaying(answer) as at_work, at_work.get() as response:
        assert response.status == status
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert at_work.broken_off == 1


async def test_who_left_an_answer_that_then_breaks_off_is_told_nothing() -> None:
    answer = scripted.Response(EVENT, headers=STREAM)
    async with relaying(answer) as at_work:
        async with fakes.raw(at_work.port) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"1}")
            writer.transport.abort()
        await asyncio.sleep(0.05)
        answer.put(ConnectionResetError())
        await fakes.until(lambda: at_work.returned)
    assert (at_work.broken_off, at_work.counts.disconnects) == (1, 1)


async def test_an_engine_that_breaks_off_all_the_time_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = [scripted.Response(b"secret answer", ConnectionResetError()) for _ in range(3)]
    async with relaying(*broken) as at_work:
        with caplog.at_level(logging.WARNING, logger=relay.logger.name):
            for _ in broken:
                await at_work.bytes_of()
    assert at_work.broken_off == 3
    (logged,) = [one for one in caplog.records if one.name == relay.logger.name]
    assert "secret" not in str(logged.__dict__)
