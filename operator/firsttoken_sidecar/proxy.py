"""Passes one request to the engine and its answer back, chunk by chunk, with back-pressure both ways.

Nothing is buffered beyond the HTTP library's stream limits (64 KiB a direction). A client that leaves
cancels this handler, and that closes the connection to the engine, which is how the engine learns of it.
"""

import asyncio
import logging
from collections.abc import Callable

import aiohttp
from aiohttp import web
from yarl import URL

from firsttoken_api import errors
from firsttoken_sidecar import content, headers, logs, metrics, refusals, stopwatch, timing, upload

CONNECT_TIMEOUT_S = 15.0
"""The engine is on loopback: it takes a connection or refuses it at once. What lasts longer is a machine so
busy that this process does not get to see it, and that is no reason to turn a request away."""
ENGINE_WAIT_S = 2.0
"""How long a request waits for an engine that takes no connection, before it is told to retry."""
RETRY_EVERY_S = 0.1
POOL_KEEPALIVE_S = 15.0
"""Shorter than any engine's own limit, so that a pooled connection is not closed under a request."""

_SKIPPED_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

logger = logging.getLogger(__name__)


def session() -> aiohttp.ClientSession:
    """A session that adds, keeps and decodes nothing, and opens as many connections as there are requests."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=POOL_KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIPPED_AUTOMATIC,
        auto_decompress=False,
    )


class Proxy:
    """The way to one engine."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        api_url: URL,
        ledger: timing.Ledger,
        counts: metrics.Counts,
        clock: Callable[[], float],
        max_body_bytes: int,
    ) -> None:
        self._client = client
        self._api_url = api_url
        self._ledger = ledger
        self._counts = counts
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._limited = logs.Limited(logger)

    async def forward(
        self,
        request: web.Request,
        request_id: str,
        timed: timing.OpenRequest | None,
        is_closing: Callable[[], bool],
    ) -> web.StreamResponse:
        """The engine's answer, already sent. `timed`: the entry to time, for requests that ask for tokens.

        `is_closing` is asked when the answer starts: whether the connection is to end with it. Raises
        errors.ApiError while nothing has been sent.
        """
        body = upload.Upload(request, self._max_body_bytes)
        if body.fault is not None:
            raise self._refused(body.fault)
        upstream = await self._send(request, request_id, body)
        is_complete = False
        try:
            answer = web.StreamResponse(
                status=upstream.status,
                reason=upstream.reason,
                headers=headers.of_answer(upstream.headers, request_id),
            )
            if is_closing():
                answer.force_close()
            is_complete = await self._relay(request, upstream, answer, timed)
            return answer
        finally:
            if is_complete:
                upstream.release()
            else:
                upstream.close()

    async def _send(
        self, request: web.Request, request_id: str, body: upload.Upload
    ) -> aiohttp.ClientResponse:
        """Sends the request, waiting a little for an engine that is not there yet."""
        target = request.rel_url
        url = URL.build(
            scheme=self._api_url.scheme,
            host=self._api_url.host or "",
            port=self._api_url.port,
            path=target.raw_path,
            query_string=target.raw_query_string,
            encoded=True,
        )
        passed = headers.of_request(request.headers, request_id)
        deadline = self._clock() + ENGINE_WAIT_S
        while True:
            data = body.chunks() if request.body_exists else None
            try:
                return await self._client.request(
                    request.method, url, headers=passed, data=data, allow_redirects=False
                )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                if body.is_started or self._clock() >= deadline:
                    raise self._not_there(error) from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._not_sent(error, body) from error
            await asyncio.sleep(RETRY_EVERY_S)

    def _refused(self, fault: errors.ApiError) -> errors.ApiError:
        is_too_large = isinstance(fault, errors.RequestTooLargeError)
        reason = metrics.RefusalReason.TOO_LARGE if is_too_large else metrics.RefusalReason.BROKEN_BODY
        self._counts.refusals[reason] += 1
        return fault

    def _not_there(self, error: Exception) -> errors.ApiError:
        self._counts.engine_errors[metrics.EngineErrorReason.NOT_THERE] += 1
        self._limited.warning("engine takes no connection", error=str(error))
        return errors.UnavailableError("The engine is not answering yet; retry in a moment.")

    def _not_sent(self, error: Exception, body: upload.Upload) -> errors.ApiError:
        if body.fault is not None:
            return self._refused(body.fault)
        self._counts.engine_errors[metrics.EngineErrorReason.BEFORE_ANSWER] += 1
        self._limited.warning("engine broke off before its answer", error=_name(error))
        return errors.EngineUnreachableError("The engine broke off before it answered.")

    async def _relay(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        answer: web.StreamResponse,
        timed: timing.OpenRequest | None,
    ) -> bool:
        """Sends the answer on. False: one side broke off, and the engine's connection is to be closed."""
        watched = stopwatch.Stopwatch(upstream, timed, self._ledger, self._clock)
        event_end = content.EventEnd()
        try:
            await answer.prepare(request)
            while True:
                try:
                    chunk = await upstream.content.readany()
                except (aiohttp.ClientError, OSError) as error:
                    await self._break_off(request, answer, error, event_end)
                    return False
                if not chunk:
                    break
                watched.watch(chunk)
                await answer.write(chunk)
                watched.written()
                event_end.watch(chunk)
            await answer.write_eof()
        except ConnectionError:
            self._counts.disconnects += 1
            return False
        watched.ended()
        return True

    async def _break_off(
        self,
        request: web.Request,
        answer: web.StreamResponse,
        error: Exception,
        event_end: content.EventEnd,
    ) -> None:
        """The engine failed in mid-answer: a stream ends with an error event, anything else is cut short."""
        self._counts.engine_errors[metrics.EngineErrorReason.MID_ANSWER] += 1
        self._limited.warning("engine broke off in mid-answer", error=_name(error))
        if answer.content_type == "text/event-stream" and answer.status == 200:
            refusal = errors.EngineUnreachableError("The engine broke off in the middle of the answer.")
            event = b"data: " + refusals.encoded(refusal) + b"\n\n"
            answer.force_close()
            await answer.write(event if event_end.is_reached else b"\n\n" + event)
            await answer.write_eof()
        # A body that is not complete must not look complete: no last chunk, no full length.
        if request.transport is not None:
            request.transport.close()


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
