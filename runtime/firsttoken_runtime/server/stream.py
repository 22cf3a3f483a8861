"""Server-sent events: the answers of one request to one client, as they come.

The response starts with the first piece, so that a failure before it still has its HTTP status; while a
long prompt is computed, comments keep the connection open. A failure after the start is an `error` event,
and no `[DONE]` follows it. Answers of one request interleave; each has its own opening and finish.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from firsttoken_api import errors
from firsttoken_runtime.server import stamps, timing_wanted
from firsttoken_runtime.server.choice import Choice, Delta, Reading
from firsttoken_runtime.server.replies import Reply, usage
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.sequence import Group

KEEP_ALIVE_S = 10.0
STALLED_S = 60.0
"""A client that takes nothing for so long has gone; its answer may have ended in the engine long ago."""
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


def event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


class EventStream:
    """The response of one streamed request."""

    def __init__(
        self,
        request: web.Request,
        reply: Reply,
        timer: RequestTimer,
        *,
        keep_alive_s: float,
        has_usage: bool = False,
        has_running_usage: bool = False,
        timing: timing_wanted.TimingWanted = timing_wanted.NOTHING,
    ) -> None:
        self._request = request
        self._response = web.StreamResponse(headers=HEADERS)
        self._reply = reply
        self._timer = timer
        self._keep_alive_s = keep_alive_s
        self._has_usage = has_usage
        self._has_running_usage = has_running_usage
        self._has_timing = timing.is_in_answer
        self._has_stamps = timing.is_stamped
        self._is_stamped = False
        self._opened: set[int] = set()

    async def run(self, group: Group, choices: list[Choice]) -> web.StreamResponse:
        """Send until the end; a choice without `finish_reason` is left if the engine or the client failed.

        Raises ApiError only while nothing is sent yet.
        """
        try:
            return await self._send(group, choices)
        except ConnectionResetError:  # the client has gone
            return self._response

    async def _send(self, group: Group, choices: list[Choice]) -> web.StreamResponse:
        reading = Reading(group, choices, self._timer)
        try:
            while not reading.has_ended:
                await self._wait(group)
                events: list[bytes] = []
                for choice, deltas in reading.take():
                    events += self._events(choice, deltas, choices)
                if reading.has_ended:
                    break
                if events:
                    await self._write(*events, *self._first_stamp(choices))
                    self._timer.text()
        except errors.ApiError as error:
            if not self._response.prepared:
                raise
            await self._write(event(error.body()))
            return self._response
        events += self._first_stamp(choices)
        if self._has_usage or self._has_timing:
            events.append(event(self._last(choices)))
        if self._has_stamps:
            events.append(stamps.end(choices))
        await self._write(*events, DONE)
        self._timer.text()
        await self._response.write_eof()
        return self._response

    def _last(self, choices: list[Choice]) -> dict[str, Any]:
        """The chunk without choices: usage, and the stages of the TTFT, which may only end here."""
        chunk = self._reply.usage(choices)
        if not self._has_usage:
            del chunk["usage"]
        if self._has_timing:
            self._timer.text()
            assert self._timer.timing is not None
            chunk["timing"] = self._timer.timing.document()
        return chunk

    def _first_stamp(self, choices: list[Choice]) -> list[bytes]:
        """Once, where a sidecar asked for it: in the same write as the first text, so that both are there at
        the same time."""
        if not self._has_stamps or self._is_stamped:
            return []
        self._is_stamped = True
        return [stamps.first(choices, self._timer.timing_now())]

    def _events(self, choice: Choice, deltas: list[Delta], choices: list[Choice]) -> list[bytes]:
        index = choice.index
        if self._has_running_usage:
            running = {"usage": usage(choices)}
            events = [event(self._reply.delta(index, delta) | running) for delta in deltas]
        else:
            running = {}
            events = [self._reply.delta_event(index, delta) for delta in deltas]
        if index not in self._opened:
            self._opened.add(index)
            events[:0] = [event(chunk | running) for chunk in self._reply.opening(index)]
        if choice.has_ended:
            events.append(event(self._reply.finish(choice) | running))
        return events

    async def _wait(self, group: Group) -> None:
        while True:
            try:
                async with asyncio.timeout(self._keep_alive_s):
                    return await group.wait()
            except TimeoutError:
                await self._write(KEEP_ALIVE)

    async def _write(self, *parts: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._request)
        try:
            async with asyncio.timeout(STALLED_S):
                await self._response.write(b"".join(parts))
        except TimeoutError as error:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client takes nothing") from error
