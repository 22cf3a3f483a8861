"""Clients that mean well: those that stream all the time, and those that only keep their connection."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

HEALTH = b"GET /health HTTP/1.1\r\nHost: soak\r\n\r\n"


@dataclass
class Counts:
    """What all of them have seen."""

    streams: int = 0
    tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    idle_opened: int = 0
    idle_closed: int = 0
    """Closed by the other side: a connection is not kept for ever."""
    hostile: Counter[str] = field(default_factory=Counter)
    """How those that mean harm were answered."""


async def stream_for_ever(http: aiohttp.ClientSession, url: str, seed: int, counts: Counts) -> None:
    """One stream after the other. Every tenth client leaves in the middle of its answer."""
    generator = random.Random(seed)
    number = 0
    while True:
        number += 1
        body = {
            "messages": [
                {"role": "user", "content": f"{seed}/{number} " + "x" * generator.randint(10, 4000)}
            ],
            "max_tokens": generator.randint(10, 60),
            "stream": True,
        }
        leaves_after = generator.randint(1, 9) if seed % 10 == 0 else None
        try:
            await _stream(http, url, body, leaves_after, counts)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            counts.failures[f"{type(error).__name__}: {error}"[:200]] += 1
            await asyncio.sleep(1.0)


async def _stream(
    http: aiohttp.ClientSession, url: str, body: dict[str, object], leaves_after: int | None, counts: Counts
) -> None:
    events = 0
    async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}: {(await answer.text())[:120]}")
        is_done = False
        async for line in answer.content:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                is_done = True
                break
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise ValueError(f"error event: {chunk['error']}")
            events += 1
            counts.tokens += 1
            if events == leaves_after:
                return
    if not is_done:
        raise ValueError("the stream ended without [DONE]")
    counts.streams += 1


async def idle_for_ever(host: str, port: int, counts: Counts) -> None:
    """Asks once and keeps the connection; opens another one when it is closed."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            counts.failures[f"idle: {type(error).__name__}"] += 1
            await asyncio.sleep(1.0)
            continue
        counts.idle_opened += 1
        try:
            writer.write(HEALTH)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                counts.failures[f"idle: {head[:40]!r}"] += 1
            while await reader.read(1024):
                pass
            counts.idle_closed += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            counts.failures[f"idle: {type(error).__name__}"] += 1
            await asyncio.sleep(1.0)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
