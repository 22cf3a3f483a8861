"""An answer whose bytes come, end or break off as a test says; a ticket that remembers what it was told."""

import asyncio
from collections.abc import Mapping
from typing import cast

import aiohttp

from firsttoken_sidecar import admission, answers, stages


class Response:
    """What the HTTP library has of an answer. After `pieces` it waits, for `put` or for good."""

    reason = "Scripted"

    def __init__(
        self, *pieces: bytes | Exception, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """`pieces`: an empty one is the end; an exception breaks the answer off."""
        self.status = status
        self.headers = headers or {}
        self.content = self
        self.reads = 0
        self.ending = ""
        """`released`: its connection can be used again; `closed`: it ended with the answer."""
        self._coming: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        for piece in pieces:
            self.put(piece)

    def put(self, piece: bytes | Exception) -> None:
        self._coming.put_nowait(piece)

    async def readany(self) -> bytes:
        self.reads += 1
        piece = await self._coming.get()
        if isinstance(piece, Exception):
            raise piece
        return piece

    def release(self) -> None:
        self.ending = "released"

    def close(self) -> None:
        self.ending = "closed"

    def upstream(self) -> answers.Upstream:
        return answers.Upstream(cast(aiohttp.ClientResponse, self))


class Ticket:
    """An `admission.Ticket`."""

    def __init__(self, estimate: admission.Estimate | None = None) -> None:
        self.estimate = estimate
        self.was_sent = False
        self.firsts: list[tuple[float, stages.Stamps | None]] = []
        self.closings: list[int | None] = []

    def sent(self) -> None:
        self.was_sent = True

    def first_content(self, ttft_s: float, stamps: stages.Stamps | None) -> None:
        self.firsts.append((ttft_s, stamps))

    def closed(self, completion_tokens: int | None = None) -> None:
        self.closings.append(completion_tokens)
