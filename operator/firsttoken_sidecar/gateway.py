"""What happens to one request, from its arrival to its last byte: the stations of the gateway, in order.

    hop? ─▶ API key ─▶ body read, class ─▶ limits of the key ─▶ join an equal one, or: route ─▶ admit ─▶ send

What does not ask for tokens is identified, and passes to the engine of this pod as it comes.
"""

import logging
from collections.abc import Callable

from aiohttp import web
from multidict import CIMultiDict

from firsttoken_api import errors, names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_sidecar import (
    admitter,
    answers,
    arrivals,
    auth,
    body_memory,
    computation,
    dispatch,
    exchange,
    headers,
    hop,
    inspection,
    joining,
    logs,
    proxy,
    relay,
    router,
    stopwatch,
    timing,
    trace_context,
    upload,
)
from firsttoken_sidecar.caller import Caller
from firsttoken_sidecar.class_ledger import OpenRequest

OPEN_PATHS = frozenset({"/health"})
"""Load balancers ask here, and they have no key."""

logger = logging.getLogger(__name__)

IsClosing = Callable[[], bool]
"""Asked when an answer starts: whether the client's connection is to end with it."""


class Gateway:
    """Answers requests. Each station is a part of its own; this is their order."""

    def __init__(
        self,
        keys: auth.Auth,
        routes: router.Router,
        dispatcher: dispatch.Dispatch,
        joiner: joining.Joiner,
        to_engine: proxy.Proxy,
        way_back: relay.Relay,
        ledger: timing.Ledger,
        settings: Callable[[], HotSettings | None],
        clock: Callable[[], float],
        *,
        max_body_bytes: int,
        is_traced: bool,
    ) -> None:
        """is_traced: a trace begins here for requests that belong to none."""
        self._auth = keys
        self._routes = routes
        self._dispatch = dispatcher
        self._joiner = joiner
        self._to_engine = to_engine
        self._relay = way_back
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._is_traced = is_traced
        self._memory = body_memory.BodyMemory()
        self._limited = logs.Limited(logger)

    async def pass_on(
        self, request: web.Request, request_id: str, is_closing: IsClosing
    ) -> web.StreamResponse:
        """The engine's answer to what asks for no tokens, already sent.

        Raises errors.ApiError while nothing has been sent.
        """
        tenant = ""
        if request.path not in OPEN_PATHS:
            who = self._auth.identify(request.headers)
            tenant = who.tenant
            if request.method == "POST":
                # It works the engine too.
                self._auth.take(who, tokens=0)
        body = self._body(request)
        passed = headers.of_request(request.headers, request_id)
        upstream = await self._to_engine.send(
            proxy.Outgoing(
                request.method,
                request.rel_url,
                headers.for_engine(passed, tenant, hides_key=self._auth.is_on),
                body if request.body_exists else None,
            )
        )
        try:
            return await self._relay.send(request, request_id, upstream, None, is_closing=is_closing)
        finally:
            upstream.close()

    async def answer(
        self, request: web.Request, request_id: str, arrival_s: float, is_closing: IsClosing
    ) -> web.StreamResponse:
        """The answer to a request for tokens, already sent. Raises as `pass_on`."""
        age_s = self._believed_age_s(request)
        who = self._auth.identify(request.headers)
        body = self._body(request)
        lease = self._memory.lease()
        work = None
        try:
            inspected = await self._inspect(request, body, who, lease)
            arrival = arrivals.Arrival(
                request_id=request_id,
                arrival_s=arrival_s - (age_s or 0.0),
                caller=who,
                inspected=inspected,
                client=who.name or request.remote or "",
                is_forwarded=age_s is not None,
            )
            going = dispatch.Request(request.method, request.rel_url, self._passed(request, arrival), body)
            work = dispatch.Work(self._dispatch, arrival, going, lease)
            if arrival.is_forwarded:
                # Counted, limited and timed where the client is.
                return await self._answered(request, work, None, is_closing)
            return await self._accounted(request, work, is_closing)
        finally:
            if work is None or not work.is_shared:
                lease.release()

    async def _accounted(
        self, request: web.Request, work: dispatch.Work, is_closing: IsClosing
    ) -> web.StreamResponse:
        """For a client of this sidecar: held to the limits of its key, and timed."""
        arrival = work.arrival
        inspected = arrival.inspected
        charge = self._auth.take(
            arrival.caller, inspected.estimated_prompt_tokens + (inspected.max_tokens or 0)
        )
        timed = self._ledger.open(
            arrival.arrival_s,
            inspected.request_class,
            arrival.caller.tenant,
            client=arrival.client,
            inspected=inspected,
            trace_id=trace_context.sampled_trace_id(work.request.headers),
        )
        try:
            return await self._answered(request, work, timed, is_closing)
        except errors.ApiError as error:
            charge.settle(0)
            if isinstance(error, admitter.RefusedError):
                self._ledger.refused(timed, self._clock(), error.uncached_tokens)
            raise
        finally:
            if work.used_tokens is not None:
                charge.settle(work.used_tokens)
            self._ledger.close(timed, self._clock())

    async def _answered(
        self, request: web.Request, work: dispatch.Work, timed: OpenRequest | None, is_closing: IsClosing
    ) -> web.StreamResponse:
        arrival = work.arrival

        def on_sent() -> None:
            if timed is not None:
                timed.sent(self._clock())

        wanted = joining.keys(arrival, request.raw_path, request.headers)
        if not wanted:
            source = await work.open(on_sent)
            try:
                watched = self._watch(source, arrival, timed, source.first_content)
                answer = await self._sent(request, work, source, watched, is_closing)
                source.ended(watched.stamps)
                return answer
            finally:
                source.close()
        found = self._joiner.find(wanted)
        if found is None:
            work.is_shared = True

            def observe(source: exchange.Exchange) -> stopwatch.Stopwatch:
                return self._watch(source, arrival, None, source.first_content)

            found = self._joiner.start(wanted, work.open, observe, on_ended=work.give_up_body)
        elif timed is not None:
            timed.is_joined = True
        reader = found.join(on_sent)
        try:
            await reader.started()
            watched = self._watch(reader, arrival, timed, None)
            return await self._sent(request, work, reader, watched, is_closing)
        finally:
            reader.leave()

    async def _sent(
        self,
        request: web.Request,
        work: dispatch.Work,
        answer: exchange.Exchange | computation.Reader,
        watched: stopwatch.Stopwatch,
        is_closing: IsClosing,
    ) -> web.StreamResponse:
        extra = {}
        if answer.estimate is not None and headers.wants_timing(request.headers):
            extra[names.HEADER_ESTIMATE] = answer.estimate.header()
        sent = await self._relay.send(
            request,
            work.arrival.request_id,
            answer,
            watched,
            is_closing=is_closing,
            is_forwarded=work.arrival.is_forwarded,
            extra=extra,
        )
        work.stamps = watched.stamps
        return sent

    def _watch(
        self,
        answer: answers.Answer,
        arrival: arrivals.Arrival,
        timed: OpenRequest | None,
        on_first: stopwatch.OnFirst | None,
    ) -> stopwatch.Stopwatch:
        return stopwatch.Stopwatch(
            answer.status,
            answer.headers,
            timed,
            self._ledger,
            self._clock,
            # Whoever is asked by a peer, or reads for several, passes them on.
            keeps_stamps=timed is None,
            on_first=on_first,
            arrival_s=arrival.arrival_s,
        )

    def _believed_age_s(self, request: web.Request) -> float | None:
        """How long ago a peer got the request; None: it comes from a client, whatever it says."""
        said = request.headers.get(names.HEADER_HOP)
        if said is None:
            return None
        age_s = hop.age_s(said) if self._routes.is_peer(request.remote) else None
        if age_s is None:
            self._limited.warning("hop header of no peer dropped", address=request.remote)
        return age_s

    def _body(self, request: web.Request) -> upload.Upload:
        body = upload.Upload(request, self._max_body_bytes)
        if body.fault is not None:
            raise body.fault
        return body

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
        if arrival.caller.max_class and self._settings() is not None:
            # Perhaps lower than what was asked for; and what a key may not have the engine does not see.
            passed[names.HEADER_CLASS] = arrival.inspected.request_class
        return passed
