"""The door for clients: decides what may pass to the engine, and sees each request in and out."""

import asyncio
import uuid
from collections.abc import Callable

from aiohttp import web

from firsttoken_api import errors, names
from firsttoken_sidecar import drain, metrics, proxy, refusals, timing

PASSED_PREFIX = "/v1/"
PASSED_PATHS = frozenset({"/health", "/tokenize", "/detokenize"})
TOKEN_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""POST to these asks for tokens: it is an arrival, and its first token is timed."""


def is_passed(path: str) -> bool:
    """Whether a path (percent-decoded) is the engine's to answer. Dot segments lead out and are not."""
    if {".", ".."} & set(path.split("/")):
        return False
    return path.startswith(PASSED_PREFIX) or path in PASSED_PATHS


class Traffic:
    """Handles every request of the traffic port."""

    def __init__(
        self,
        forward: proxy.Proxy,
        draining: drain.Drain,
        open_requests: drain.OpenRequests,
        ledger: timing.Ledger,
        counts: metrics.Counts,
        clock: Callable[[], float],
    ) -> None:
        self._proxy = forward
        self._drain = draining
        self._open_requests = open_requests
        self._ledger = ledger
        self._counts = counts
        self._clock = clock
        self._busy: set[web.RequestHandler] = set()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[refusals.openai_form])
        application.router.add_route("*", "/{path:.*}", self.handle)
        return application

    def close_idle(self, connections: list[web.RequestHandler]) -> None:
        """Ends connections on which no request is open, so that no client sends one more on them."""
        for connection in connections:
            if connection not in self._busy:
                connection.force_close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        arrival_s = self._clock()
        request_id = request.headers.get(names.HEADER_REQUEST_ID) or uuid.uuid4().hex
        connection = request.protocol
        self._busy.add(connection)
        try:
            with self._open_requests:
                answer = await self._answer(request, request_id, arrival_s)
        except asyncio.CancelledError:
            # The client left; the proxy has already let go of the engine.
            self._counts.disconnects += 1
            raise
        finally:
            self._busy.discard(connection)
        self._counts.answered(answer.status)
        if self._drain.is_refusing:
            # An answer that began before the drain promised to keep the connection.
            connection.close()
        return answer

    async def _answer(self, request: web.Request, request_id: str, arrival_s: float) -> web.StreamResponse:
        timed = None
        try:
            self._check(request)
            if request.method == "POST" and request.path in TOKEN_PATHS:
                timed = self._ledger.open(arrival_s)
            return await self._proxy.forward(request, request_id, timed, lambda: self._drain.is_draining)
        except errors.ApiError as error:
            answer = refusals.response(error, close=self._drain.is_draining)
            answer.headers[names.HEADER_REQUEST_ID] = request_id
            return answer
        finally:
            if timed is not None:
                self._ledger.close(timed, self._clock())

    def _check(self, request: web.Request) -> None:
        """Raises errors.ApiError for what does not pass."""
        if not is_passed(request.path):
            self._counts.refusals[metrics.RefusalReason.UNKNOWN_PATH] += 1
            raise errors.UnknownRouteError(f"There is nothing at {request.path[:200]}.")
        if self._drain.is_refusing:
            self._counts.refusals[metrics.RefusalReason.DRAINING] += 1
            raise errors.DrainingError("This replica is ending; another one will answer.")
