"""Server-sent events: one sequence's text to one client, as it comes.

The response starts with the first text, so that a failure before it still has its HTTP status; while a
long prompt is computed, comments keep the connection open. A failure after the start is an `error` event,
and no `[DONE]` follows it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.metrics import RequestTimer
from firsttoken_runtime.server.replies import Reply
from firsttoken_runtime.server.sequences import Sequence

KEEP_ALIVE_S = 10.0
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


class EventStream:
    """The response of one streamed request."""

    def __init__(self, request: web.Request, keep_alive_s: float) -> None:
        self._request = request
        self._response = web.StreamResponse(headers=HEADERS)
        self._keep_alive_s = keep_alive_s

    async def run(
        self,
        sequence: Sequence,
        answer: Answer,
        reply: Reply,
        *,
        include_usage: bool,
        timer: RequestTimer,
    ) -> web.StreamResponse:
        """Send until the end; `answer.finish_reason` stays None if the engine or the client failed.

        Raises ApiError only while nothing is sent yet.
        """
        try:
            return await self._send(sequence, answer, reply, include_usage, timer)
        except ConnectionResetError:  # the client has gone
            return self._response

    async def _send(
        self, sequence: Sequence, answer: Answer, reply: Reply, include_usage: bool, timer: RequestTimer
    ) -> web.StreamResponse:
        opening = [event(chunk) for chunk in reply.opening()]
        try:
            while answer.finish_reason is None:
                tokens = await self._next_tokens(sequence)
                timer.tokens(tokens)
                text = answer.take(tokens)
                if text:
                    await self._write(*opening, event(reply.text(text)))
                    opening = []
                    timer.text()
        except errors.ApiError as error:
            if not self._response.prepared:
                raise
            await self._write(event(error.body()))
            return self._response
        last = [event(reply.finish(answer))]
        if include_usage:
            last.append(event(reply.usage(sequence.prompt_tokens, answer)))
        await self._write(*opening, *last, DONE)
        timer.text()
        await self._response.write_eof()
        return self._response

    async def _next_tokens(self, sequence: Sequence) -> list[core.Token]:
        while True:
            try:
                async with asyncio.timeout(self._keep_alive_s):
                    return await sequence.next_tokens()
            except TimeoutError:
                await self._write(KEEP_ALIVE)

    async def _write(self, *parts: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._request)
        await self._response.write(b"".join(parts))
