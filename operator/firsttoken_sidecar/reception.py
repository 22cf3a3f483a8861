"""Turns what came over a connection into a request that the gateway's parts understand.

Whether a peer sent it and how long ago it arrived there, who asks, what its body says, which headers go on.
"""

import logging
from collections.abc import Callable

from aiohttp import web
from multidict import CIMultiDict

from firsttoken_api import names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_sidecar import (
    arrivals,
    auth,
    body_memory,
    dispatch,
    headers,
    hop,
    inspection,
    logs,
    router,
    timing,
    trace_context,
    upload,
    work,
)
from firsttoken_sidecar.caller import Caller

logger = logging.getLogger(__name__)


class Reception:
    """Where requests for tokens come in."""

    def __init__(
        self,
        keys: auth.Auth,
        routes: router.Router,
        dispatcher: dispatch.Dispatch,
        ledger: timing.Ledger,
        settings: Callable[[], HotSettings | None],
        *,
        max_body_bytes: int,
        is_traced: bool,
    ) -> None:
        """is_traced: a trace begins here for requests that belong to none."""
        self._auth = keys
        self._routes = routes
        self._dispatch = dispatcher
        self._ledger = ledger
        self._settings = settings
        self._max_body_bytes = max_body_bytes
        self._is_traced = is_traced
        self._memory = body_memory.BodyMemory()
        self._limited = logs.Limited(logger)

    async def receive(self, request: web.Request, request_id: str, arrival_s: float) -> work.Work:
        """The request with its body, where that is not too large. Raises errors.ApiError."""
        age_s = self._believed_age_s(request)
        who = self._auth.identify(request.headers)
        body = upload.Upload(request, self._max_body_bytes)
        if body.fault is not None:
            raise body.fault
        lease = self._memory.lease()
        try:
            inspected = await self._inspect(request, body, who, lease)
        except BaseException:
            lease.release()
            raise
        arrival = arrivals.Arrival(
            request_id=request_id,
            arrival_s=arrival_s - (age_s or 0.0),
            caller=who,
            inspected=inspected,
            client=who.name or request.remote or "",
            is_forwarded=age_s is not None,
        )
        going = dispatch.Request(request.method, request.rel_url, self._passed(request, arrival), body)
        return work.Work(self._dispatch, arrival, going, lease)

    def _believed_age_s(self, request: web.Request) -> float | None:
        """How long ago a peer got the request; None: it comes from a client, whatever it says."""
        said = request.headers.get(names.HEADER_HOP)
        if said is None:
            return None
        age_s = hop.age_s(said) if self._routes.is_peer(request.remote) else None
        if age_s is None:
            self._limited.warning("hop header of no peer dropped", address=request.remote)
        return age_s

    async def _inspect(
        self, request: web.Request, body: upload.Upload, who: Caller, lease: body_memory.Lease
    ) -> inspection.Inspected:
        whole = await body.read(inspection.INSPECTED_BYTES, lease)
        settings = self._settings()
        bytes_per_token = self._ledger.calibration.bytes_per_token()
        if whole is None:
            return inspection.unseen(
                request.headers,
                request.content_length or body.read_bytes,
                settings=settings,
                max_class=who.max_class,
                bytes_per_token=bytes_per_token,
            )
        return inspection.inspect(
            request.headers,
            whole,
            tenant=who.tenant,
            settings=settings,
            max_class=who.max_class,
            bytes_per_token=bytes_per_token,
        )

    def _passed(self, request: web.Request, arrival: arrivals.Arrival) -> CIMultiDict[str]:
        """The headers that go on."""
        passed = headers.of_request(request.headers, arrival.request_id)
        headers.ask_for_stamps(passed)
        trace_context.ensure(passed, is_traced=self._is_traced)
        if arrival.caller.max_class and arrival.inspected.request_class:
            # Perhaps lower than what was asked for; and what a key may not have the engine does not see.
            passed[names.HEADER_CLASS] = arrival.inspected.request_class
        return passed
