"""Client connections that cost little, whatever comes over them.

aiohttp ends a connection that is idle for too long, also one that never asked anything. What it does not
bound is done here: how long a request's head may take and how large it may grow, and how many connections
there are. Bytes that are not HTTP are answered in the same form as every other refusal. What a client sent
never reaches the log: it may hold a key or a prompt.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from firsttoken_api import errors, malformed
from firsttoken_sidecar import logs, metrics, refusals

IDLE_S = 75.0
"""Longer than the connection pools of common clients keep an unused connection."""
HEAD_TIMEOUT_S = 10.0
"""From the first byte of a request's head to its last."""
MOST_HEAD_BYTES = 32 * 1024
MOST_HEADERS = 100
MOST_CONNECTIONS = 2048

logger = logging.getLogger(__name__)


class Connections:
    """All open client connections of one server."""

    def __init__(self, counts: metrics.Counts, most: int = MOST_CONNECTIONS) -> None:
        self._counts = counts
        self._most = most
        self._open: dict[Connection, None] = {}
        self._limited = logs.Limited(logger)

    def opened(self, connection: "Connection") -> None:
        """One more; beyond the limit the one that is idle longest goes, else this one."""
        if len(self._open) >= self._most:
            idle = [each for each in self._open if each.is_idle]
            leaving = min(idle, key=lambda each: each.idle_since_s, default=connection)
            self._counts.refusals[metrics.RefusalReason.CONNECTIONS] += 1
            self._limited.warning("too many connections", open=len(self._open), had_idle=bool(idle))
            leaving.force_close()
        self._open[connection] = None

    def closed(self, connection: "Connection") -> None:
        self._open.pop(connection, None)

    def close_idle(self) -> None:
        """Ends connections on which no request is open, so that no client sends one more on them."""
        for connection in [each for each in self._open if each.is_idle]:
            connection.force_close()

    def malformed(self, kind: str) -> None:
        """What came over one of them is not a request. `kind`: our word for it, none of the client's."""
        self._counts.refusals[metrics.RefusalReason.MALFORMED] += 1
        self._limited.warning("malformed request refused", kind=kind)

    def __len__(self) -> int:
        return len(self._open)


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_connections", "_head_bytes", "_head_timer", "idle_since_s")

    def __init__(self, manager: web.Server, connections: Connections, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(manager, loop=loop, **options)
        self._connections = connections
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self.idle_since_s = loop.time()

    @property
    def is_idle(self) -> bool:
        """No request is being answered, and no whole head of one has come."""
        return not self._request_in_progress and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.closed(self)
        self._head_is_over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        is_waiting = self._waiter is not None and not self._waiter.done()
        super().data_received(data)
        if not is_waiting or self._messages:
            # The bytes of a body, or the end of a head.
            self._head_is_over()
            self.idle_since_s = self._loop.time()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self._refuse(
                errors.BadRequestError(f"The head of the request is larger than {MOST_HEAD_BYTES} bytes.")
            )
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what never became a request, or to a handler that broke; then the connection ends."""
        if isinstance(exc, HttpProcessingError):
            self._connections.malformed(type(exc).__name__)
            why = malformed.reason(message, is_line_too_long=isinstance(exc, LineTooLong))
            error: errors.ApiError = errors.BadRequestError(f"The request is not HTTP: {why}.")
        else:
            self.log_exception("Error handling request", exc_info=exc)
            error = errors.InternalError("The sidecar made a mistake; its log has the rest.")
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun: it can only be cut")
        return refusals.response(error, close=True)

    def _head_is_over(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._refuse(
            errors.RequestTimeoutError(f"The head of the request did not come within {HEAD_TIMEOUT_S:g} s.")
        )

    def _refuse(self, error: errors.ApiError) -> None:
        """Answers below the HTTP library, which is still waiting for a head."""
        self._head_is_over()
        self._connections.malformed(error.detail_code or error.type)
        body = refusals.encoded(error)
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        if self.transport is not None:
            self.transport.write(head.encode() + body)
        self.force_close()


class _Server(web.Server):
    """Makes those connections."""

    def __init__(self, like: web.Server, connections: Connections) -> None:
        super().__init__(
            like.request_handler,
            request_factory=like.request_factory,
            handler_cancellation=like.handler_cancellation,
        )
        self._connection_options = like._kwargs
        self._to_watch = connections

    def __call__(self) -> web.RequestHandler:
        return Connection(self, self._to_watch, **self._connection_options)


class Runner(web.AppRunner):
    """Runs an application on such a server."""

    def __init__(self, application: web.Application, connections: Connections, **options: Any) -> None:
        super().__init__(application, keepalive_timeout=IDLE_S, max_headers=MOST_HEADERS, **options)
        self._to_watch = connections

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._to_watch)
