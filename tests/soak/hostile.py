"""Clients that mean harm, a few at a time: they must be turned away, and cost nothing that stays."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from soak.clients import Counts

PATIENCE_S = 60.0
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"


async def header_bombs(host: str, port: int, counts: Counts) -> None:
    """Heads that are too long, or have too many lines."""
    many = CHAT + b"".join(b"X-%d: y\r\n" % index for index in range(2000)) + b"\r\n"
    long = CHAT + b"X-Long: " + b"y" * 200_000 + b"\r\n\r\n"
    while True:
        for name, head in (("long header", long), ("many headers", many)):
            counts.hostile[f"{name}: {await _sent(host, port, head)}"] += 1
        await asyncio.sleep(1.0)


async def nonsense(host: str, port: int, counts: Counts) -> None:
    """Not HTTP, and a body that is announced far too large."""
    while True:
        for name, sent in (
            ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00" + bytes(range(256)) + b"\r\n\r\n"),
            ("100 MB body", CHAT + b"Content-Length: 104857600\r\n\r\n" + b"{" * 10_000),
            ("forged hop", CHAT + b"X-Firsttoken-Hop: 1;age_ms=1e9\r\nContent-Length: 1\r\n\r\n{"),
        ):
            counts.hostile[f"{name}: {await _sent(host, port, sent)}"] += 1
        await asyncio.sleep(2.0)


async def slow_head(host: str, port: int, counts: Counts) -> None:
    """A head that comes byte by byte and never ends."""
    while True:
        counts.hostile[f"slow head: {await _trickled(host, port, CHAT + b'X-Slow: ')}"] += 1


async def slow_body(host: str, port: int, counts: Counts) -> None:
    """A body that comes byte by byte."""
    while True:
        start = CHAT + b"Content-Length: 1000000\r\n\r\n"
        counts.hostile[f"slow body: {await _trickled(host, port, start)}"] += 1


async def _sent(host: str, port: int, content: bytes) -> str:
    async with _connection(host, port) as (reader, writer):
        if reader is None or writer is None:
            return "no connection"
        with contextlib.suppress(OSError):
            writer.write(content)
            await writer.drain()
        return await _answer(reader)


async def _trickled(host: str, port: int, start: bytes) -> str:
    async with _connection(host, port) as (reader, writer):
        if reader is None or writer is None:
            return "no connection"
        answer = asyncio.create_task(_answer(reader))
        with contextlib.suppress(OSError):
            writer.write(start)
            while not answer.done():
                writer.write(b"x")
                await writer.drain()
                await asyncio.wait([answer], timeout=1.0)
        return await answer


async def _answer(reader: asyncio.StreamReader) -> str:
    """The status, or how it ended without one."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await reader.readline()
    except TimeoutError:
        return "nothing happened"
    except OSError:
        return "closed"
    return line.split(b" ")[1].decode(errors="replace") if line.startswith(b"HTTP/1.") else "closed"


@contextlib.asynccontextmanager
async def _connection(
    host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader | None, asyncio.StreamWriter | None]]:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        await asyncio.sleep(1.0)
        yield None, None
        return
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
