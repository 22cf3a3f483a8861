"""Answers to what never becomes a request: bytes that are not HTTP, and handlers that break.

aiohttp answers these itself, in plain text, before any middleware; the place where it lets that be changed
is the class of its connections. So the server is made with one of ours; nothing is parsed here.
"""

import asyncio
import logging
import uuid
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from firsttoken_api import errors, malformed, names
from firsttoken_runtime.server import http

log = logging.getLogger(__name__)


class Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to `exc`, after which the connection is closed."""
        if isinstance(exc, HttpProcessingError):
            # The library's message repeats the client's bytes, which may hold a key: not for the log.
            log.info("a client sent what is not HTTP: %s", type(exc).__name__)
            why = malformed.reason(message, is_line_too_long=isinstance(exc, LineTooLong))
            error: errors.ApiError = errors.BadRequestError(f"the request is not HTTP: {why}")
        else:
            self.log_exception("Error handling request from %s", request.remote, exc_info=exc)
            error = errors.InternalError("the server made a mistake; its log has the rest")
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun: it can only be cut")
        response = http.error_response(error)
        response.headers[names.HEADER_REQUEST_ID] = uuid.uuid4().hex
        response.force_close()
        return response


class _Server(web.Server):
    """Makes those connections."""

    def __init__(self, like: web.Server, *, handler_cancellation: bool, **of_connection: Any) -> None:
        super().__init__(
            like.request_handler,
            request_factory=like.request_factory,
            handler_cancellation=handler_cancellation,
        )
        self._of_connection = of_connection

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=asyncio.get_running_loop(), **self._of_connection)


class Runner(web.AppRunner):
    """Runs an application on such a server. A client that leaves cancels its handler, streaming or not, which
    aborts its sequence."""

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), handler_cancellation=True, access_log=None)
