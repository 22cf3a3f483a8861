"""The door for clients: decides what may pass, and sees each request in and out."""

import asyncio
import uuid
from collections.abc import Callable

from aiohttp import web

from firsttoken_api import errors, names
from firsttoken_sidecar import admitter, drain, gateway, headers, metrics, refusals

PASSED_PREFIX = "/v1/"
PASSED_PATHS = frozenset({"/health", "/tokenize", "/detokenize"})
TOKEN_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""POST to these asks for tokens: it is an arrival, and its first token is timed."""

_REASONS: tuple[tuple[type[errors.ApiError], metrics.RefusalReason], ...] = (
    (errors.UnknownRouteError, metrics.RefusalReason.UNKNOWN_PATH),
    (errors.DrainingError, metrics.RefusalReason.DRAINING),
    (errors.RequestTooLargeError, metrics.RefusalReason.TOO_LARGE),
    (errors.BadRequestError, metrics.RefusalReason.BROKEN_BODY),
    (errors.RequestTimeoutError, metrics.RefusalReason.BROKEN_BODY),
    (errors.ObjectiveUnreachableError, metrics.RefusalReason.OBJECTIVE),
    (errors.OverloadedError, metrics.RefusalReason.MEMORY),
)
"""What is counted here; who checks keys and engines counts those refusals there."""


def is_passed(path: str) -> bool:
    """Whether a path (percent-decoded) is the engine's to answer. Dot segments lead out and are not."""
    if {".", ".."} & set(path.split("/")):
        return False
    return path.startswith(PASSED_PREFIX) or path in PASSED_PATHS


class Traffic:
    """Handles every request of the traffic port."""

    def __init__(
        self,
        behind: gateway.Gateway,
        draining: drain.Drain,
        open_requests: drain.OpenRequests,
        counts: metrics.Counts,
        clock: Callable[[], float],
    ) -> None:
        self._gateway = behind
        self._drain = draining
        self._open_requests = open_requests
        self._counts = counts
        self._clock = clock

    def application(self) -> web.Application:
        application = web.Application(middlewares=[refusals.openai_form])
        application.router.add_route("*", "/{path:.*}", self.handle)
        return application

    async def handle(self, request: web.Request) -> web.StreamResponse:
        arrival_s = self._clock()
        request_id = request.headers.get(names.HEADER_REQUEST_ID) or uuid.uuid4().hex
        connection = request.protocol
        try:
            with self._open_requests:
                answer = await self._answer(request, request_id, arrival_s)
        except asyncio.CancelledError:
            # The client left; the engine has already been let go of.
            self._counts.disconnects += 1
            raise
        self._counts.answered(answer.status)
        if self._drain.is_refusing:
            # An answer that began before the drain promised to keep the connection.
            connection.close()
        return answer

    async def _answer(self, request: web.Request, request_id: str, arrival_s: float) -> web.StreamResponse:
        try:
            self._check(request)
            if request.method == "POST" and request.path in TOKEN_PATHS:
                return await self._gateway.answer(request, request_id, arrival_s, self._is_closing)
            return await self._gateway.pass_on(request, request_id, self._is_closing)
        except errors.ApiError as error:
            for kind, reason in _REASONS:
                if isinstance(error, kind):
                    self._counts.refusals[reason] += 1
            answer = refusals.response(error, close=self._is_closing())
            answer.headers[names.HEADER_REQUEST_ID] = request_id
            if isinstance(error, admitter.RefusedError) and headers.wants_timing(request.headers):
                answer.headers[names.HEADER_ESTIMATE] = error.estimate.header()
            return answer

    def _is_closing(self) -> bool:
        return self._drain.is_draining

    def _check(self, request: web.Request) -> None:
        """Raises errors.ApiError for what does not pass."""
        if not is_passed(request.path):
            raise errors.UnknownRouteError(f"There is nothing at {request.path[:200]}.")
        if self._drain.is_refusing:
            raise errors.DrainingError("This replica is ending; another one will answer.")
