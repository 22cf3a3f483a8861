import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from firsttoken_sidecar import answers
from sidecar import fakes

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served(serving: Serving) -> AsyncIterator[int]:
    """The port of a server that serves so and has ended when the block has."""
    at_work: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.add(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        await serving(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, fakes.LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, at_work))


@contextlib.asynccontextmanager
async def upstream(*pieces: bytes, stays_open: bool = False) -> AsyncIterator[answers.Upstream]:
    """An answer of which these pieces come, and then the end of the connection."""
    is_over = asyncio.Event()

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if stays_open:
            await is_over.wait()

    async with served(serving) as port, fakes.session() as client:
        found = answers.Upstream(await client.get(f"http://{fakes.LOOPBACK}:{port}/"))
        try:
            yield found
        finally:
            found.close()
            is_over.set()


async def test_what_was_waited_for_is_read_first_and_once() -> None:
    async with upstream(HEAD, b"1\r\na\r\n", b"1\r\nb\r\n", b"0\r\n\r\n") as answer:
        await answer.wait_for_first()
        read = []
        while piece := await answer.read():
            read.append(piece)
        assert b"".join(read) == b"ab"
        assert await answer.read() == b"", "the end stays the end"


async def test_an_answer_that_ends_before_its_first_byte_is_known_to_have_failed() -> None:
    async with upstream(HEAD) as answer:
        with pytest.raises(answers.BrokenOffError):
            await answer.wait_for_first()


async def test_an_empty_answer_is_whole() -> None:
    async with upstream(b"HTTP/1.1 204 No Content\r\n\r\n", stays_open=True) as answer:
        await answer.wait_for_first()
        assert await answer.read() == b""


async def test_what_breaks_off_later_says_so_after_what_came() -> None:
    async with upstream(HEAD, b"1\r\na\r\n") as answer:
        await answer.wait_for_first()
        assert await answer.read() == b"a"
        with pytest.raises(answers.BrokenOffError):
            await answer.read()


async def test_an_answer_that_is_given_up_closes_its_connection() -> None:
    is_gone = asyncio.Event()

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"1\r\na\r\n")
        await writer.drain()
        assert await reader.read() == b""
        is_gone.set()

    async with served(serving) as port, fakes.session() as client:
        answer = answers.Upstream(await client.get(f"http://{fakes.LOOPBACK}:{port}/"))
        await answer.wait_for_first()
        answer.close()
        await asyncio.wait_for(is_gone.wait(), 2)
