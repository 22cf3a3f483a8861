"""What happens to one request, from its arrival to its last byte: the stations of the gateway, in order.

    hop? ─▶ API key ─▶ body read, class ─▶ limits of the key ─▶ join an equal one, or: route ─▶ admit ─▶ send

What does not ask for tokens is identified, and passes to the engine of this pod as it comes.
"""

from collections.abc import Callable

from aiohttp import web

from firsttoken_api import errors, names
from firsttoken_sidecar import (
    admitter,
    answers,
    arrivals,
    auth,
    computation,
    exchange,
    headers,
    joining,
    proxy,
    reception,
    relay,
    stopwatch,
    timing,
    trace_context,
    upload,
    work,
)
from firsttoken_sidecar.class_ledger import OpenRequest

OPEN_PATHS = frozenset({"/health"})
"""Load balancers ask here, and they have no key."""

IsClosing = Callable[[], bool]
"""Asked when an answer starts: whether the client's connection is to end with it."""


class Gateway:
    """Answers requests. Each station is a part of its own; this is their order."""

    def __init__(
        self,
        receiving: reception.Reception,
        keys: auth.Auth,
        joiner: joining.Joiner,
        to_engine: proxy.Proxy,
        way_back: relay.Relay,
        ledger: timing.Ledger,
        clock: Callable[[], float],
        *,
        max_body_bytes: int,
    ) -> None:
        self._reception = receiving
        self._auth = keys
        self._joiner = joiner
        self._to_engine = to_engine
        self._relay = way_back
        self._ledger = ledger
        self._clock = clock
        self._max_body_bytes = max_body_bytes

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
        body = upload.Upload(request, self._max_body_bytes)
        if body.fault is not None:
            raise body.fault
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
        work = await self._reception.receive(request, request_id, arrival_s)
        try:
            if work.arrival.is_forwarded:
                # Counted, limited and timed where the client is.
                return await self._answered(request, work, None, is_closing)
            return await self._accounted(request, work, is_closing)
        finally:
            if not work.is_shared:
                work.give_up_body()

    async def _accounted(
        self, request: web.Request, work: work.Work, is_closing: IsClosing
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
        self, request: web.Request, work: work.Work, timed: OpenRequest | None, is_closing: IsClosing
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
        work: work.Work,
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
