"""Passes an answer on to its client, chunk by chunk, with back-pressure, and has it timed on the way."""

import logging
from collections.abc import Callable

from aiohttp import web

from firsttoken_api import errors
from firsttoken_sidecar import answers, content, headers, logs, metrics, refusals, stopwatch

logger = logging.getLogger(__name__)


class Relay:
    """The way back to clients."""

    def __init__(self, counts: metrics.Counts) -> None:
        self._counts = counts
        self._limited = logs.Limited(logger)

    async def send(
        self,
        request: web.Request,
        request_id: str,
        answer: answers.Answer,
        watched: stopwatch.Stopwatch | None,
        *,
        is_closing: Callable[[], bool],
        is_forwarded: bool = False,
        extra: dict[str, str] | None = None,
    ) -> web.StreamResponse:
        """The answer, already sent. `watched`: for requests that ask for tokens.

        `is_closing` is asked when the answer starts: whether the connection is to end with it. `extra`:
        headers that this sidecar adds.
        """
        passed = headers.of_answer(answer.headers, request_id, is_forwarded=is_forwarded)
        if extra:
            passed.update(extra)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=passed)
        if is_closing():
            response.force_close()
        try:
            await response.prepare(request)
            await self._pass_on(request, response, answer, watched)
        except ConnectionError:
            self._counts.disconnects += 1
        return response

    async def _pass_on(
        self,
        request: web.Request,
        response: web.StreamResponse,
        answer: answers.Answer,
        watched: stopwatch.Stopwatch | None,
    ) -> None:
        event_end = content.EventEnd()
        read, write = answer.read, response.write
        while True:
            try:
                chunk = await read()
            except answers.BrokenOffError as error:
                await self._break_off(request, response, error, event_end)
                return
            if not chunk:
                break
            if watched is None:
                await write(chunk)
                event_end.watch(chunk)
                continue
            if passed := watched.feed(chunk):
                await write(passed)
                event_end.watch(passed)
            watched.written()
        if watched is None:
            await response.write_eof()
            return
        await response.write_eof(watched.finish())
        watched.ended()

    async def _break_off(
        self,
        request: web.Request,
        response: web.StreamResponse,
        error: Exception,
        event_end: content.EventEnd,
    ) -> None:
        """It failed in mid-answer: a stream ends with an error event, anything else is cut short."""
        self._counts.engine_errors[metrics.EngineErrorReason.MID_ANSWER] += 1
        self._limited.warning("engine broke off in mid-answer", error=str(error))
        if response.content_type == "text/event-stream" and response.status == 200:
            refusal = errors.EngineUnreachableError("The engine broke off in the middle of the answer.")
            event = b"data: " + refusals.encoded(refusal) + b"\n\n"
            response.force_close()
            await response.write(event if event_end.is_reached else b"\n\n" + event)
            await response.write_eof()
        # A body that is not complete must not look complete: no last chunk, no full length.
        if request.transport is not None:
            request.transport.close()
