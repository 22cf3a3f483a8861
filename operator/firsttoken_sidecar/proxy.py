"""Passes one request to the engine and its answer back, chunk by chunk, with back-pressure both ways.

Nothing is buffered beyond the HTTP library's stream limits (64 KiB a direction). A client that leaves
cancels this handler, and that closes the connection to the engine, which is how the engine learns of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web
from yarl import URL

from firsttoken_api import errors
from firsttoken_sidecar import content, headers, logs, metrics, refusals, timing

CONNECT_TIMEOUT_S = 1.0
ENGINE_WAIT_S = 2.0
"""How long a request waits for an engine that takes no connection, before it is told to retry."""
RETRY_EVERY_S = 0.1
BODY_SILENCE_S = 30.0
"""How long a client may pause inside its body. The HTTP library's fast parser reports a malformed chunk to
nobody, it just sends no more; so this ends those uploads too."""
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


class Upload:
    """A client's body on its way to the engine; remembers why it broke off."""

    def __init__(self, request: web.Request, limit_bytes: int) -> None:
        self._request = request
        self._limit_bytes = limit_bytes
        self._sent_bytes = 0
        self.is_started = False
        self.fault: errors.ApiError | None = None
        """Why the client's body cannot be passed on; None while it can."""
        if (request.content_length or 0) > limit_bytes:
            self.fault = self._too_large()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises the fault."""
        self.is_started = True
        while chunk := await self._next():
            self._sent_bytes += len(chunk)
            if self._sent_bytes > self._limit_bytes:
                self.fault = self._too_large()
                raise self.fault
            yield chunk

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(BODY_SILENCE_S):
                return await self._request.content.readany()
        except TimeoutError as error:
            self.fault = errors.RequestTimeoutError(f"No more of the body came for {BODY_SILENCE_S:g} s.")
            raise self.fault from error
        except web.RequestPayloadError as error:
            self.fault = errors.BadRequestError("The request body is not well-formed HTTP.")
            raise self.fault from error

    def _too_large(self) -> errors.ApiError:
        return errors.RequestTooLargeError(f"The request body is larger than {self._limit_bytes} bytes.")


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
        upload = Upload(request, self._max_body_bytes)
        if upload.fault is not None:
            raise self._refused(upload.fault)
        upstream = await self._send(request, request_id, upload)
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

    async def _send(self, request: web.Request, request_id: str, upload: Upload) -> aiohttp.ClientResponse:
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
            body = upload.chunks() if request.body_exists else None
            try:
                return await self._client.request(
                    request.method, url, headers=passed, data=body, allow_redirects=False
                )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                if upload.is_started or self._clock() >= deadline:
                    raise self._not_there(error) from error
            except (aiohttp.ClientError, OSError) as error:
                raise self._not_sent(error, upload) from error
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

    def _not_sent(self, error: Exception, upload: Upload) -> errors.ApiError:
        if upload.fault is not None:
            return self._refused(upload.fault)
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
        stopwatch = Stopwatch(upstream, timed, self._ledger, self._clock)
        event_end = EventEnd()
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
                stopwatch.watch(chunk)
                await answer.write(chunk)
                stopwatch.written()
                event_end.watch(chunk)
            await answer.write_eof()
        except ConnectionError:
            self._counts.disconnects += 1
            return False
        stopwatch.ended()
        return True

    async def _break_off(
        self,
        request: web.Request,
        answer: web.StreamResponse,
        error: Exception,
        event_end: "EventEnd",
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


class Stopwatch:
    """Times one answer's first content, if anybody asked for it and the answer is one."""

    def __init__(
        self,
        upstream: aiohttp.ClientResponse,
        timed: timing.OpenRequest | None,
        ledger: timing.Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._timed = timed
        self._ledger = ledger
        self._clock = clock
        self._verdict: content.Verdict | None = None
        self._detector: content.Detector | None = None
        if timed is not None and upstream.status == 200:
            content_type = upstream.headers.get("Content-Type", "")
            timed.streamed = content_type.startswith("text/event-stream")
            self._detector = content.detector_for(content_type, upstream.headers.get("Content-Encoding", ""))

    def watch(self, chunk: bytes) -> None:
        """Before a chunk is written."""
        if self._detector is not None:
            self._verdict = self._detector.feed(chunk)

    def written(self) -> None:
        """After it was written: the clock stops here."""
        if self._verdict is not None:
            self._stop(self._verdict)

    def ended(self) -> None:
        """The answer is complete."""
        if self._detector is not None:
            self._stop(self._detector.finish())

    def _stop(self, verdict: content.Verdict) -> None:
        self._detector = None
        self._verdict = None
        if self._timed is not None and verdict is not content.Verdict.ERROR:
            self._ledger.first_content(self._timed, self._clock())


class EventEnd:
    """Knows whether the bytes so far end with a complete SSE event."""

    def __init__(self) -> None:
        self._tail = b"\n\n"

    def watch(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk[-4:])[-4:]

    @property
    def is_reached(self) -> bool:
        return self._tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
