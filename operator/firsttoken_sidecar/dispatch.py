"""Where a request is answered: by the engine of this pod or by a peer; and elsewhere when that fails.

Only before the first byte of an answer, and only while the body is in memory, can a request go elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

from multidict import CIMultiDict
from yarl import URL

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_sidecar import (
    admitter,
    answers,
    arrivals,
    classes,
    engines,
    exchange,
    forwarding,
    headers,
    proxy,
    route_counts,
    router,
    upload,
)
from firsttoken_sidecar.peer import Peer

MOST_PEERS_TRIED = 2
"""For one request, one after the other; each sends it on no further."""
_NOT_SERVING = (502, 503)


@dataclass(frozen=True)
class Request:
    """What goes on of a client's request."""

    method: str
    target: URL
    headers: CIMultiDict[str]
    """As they go to a peer."""
    upload: upload.Upload


class Dispatch:
    """Sends each request where it is answered soonest."""

    def __init__(
        self,
        routes: router.Router,
        to_peers: forwarding.Forwarding,
        admission: admitter.Admitter,
        to_engine: proxy.Proxy,
        engine: engines.Engine,
        settings: Callable[[], HotSettings | None],
        *,
        hides_keys: bool,
    ) -> None:
        """hides_keys: API keys are checked here and not for the engine to see."""
        self._routes = routes
        self._to_peers = to_peers
        self._admitter = admission
        self._to_engine = to_engine
        self._engine = engine
        self._settings = settings
        self._hides_keys = hides_keys

    async def open(
        self, arrival: arrivals.Arrival, request: Request, on_sent: Callable[[], None]
    ) -> exchange.Exchange:
        """The answer, when its first bytes have come. `on_sent` is called each time it is sent.

        Raises errors.ApiError.
        """
        can_go_elsewhere = arrival.inspected.body is not None and not arrival.is_forwarded
        failed: set[str] = set()
        for _ in range(MOST_PEERS_TRIED):
            target = await self._routes.route(arrival, failed=frozenset(failed))
            if target.peer is None or not can_go_elsewhere:
                break
            if (taken := await self._peer(target.peer, arrival, request, on_sent)) is not None:
                return taken
            failed.add(target.peer.name)
        try:
            own = await self._own(arrival, request, on_sent)
        except (errors.EngineUnreachableError, errors.UnavailableError):
            if not can_go_elsewhere:
                raise
            taken = await self._elsewhere(arrival, request, on_sent, failed)
            if taken is None:
                raise
            return taken
        if own.status not in _NOT_SERVING or not can_go_elsewhere:
            return own
        try:
            taken = await self._elsewhere(arrival, request, on_sent, failed)
        except BaseException:
            own.close()
            raise
        if taken is None:
            return own
        own.close()
        return taken

    async def _elsewhere(
        self,
        arrival: arrivals.Arrival,
        request: Request,
        on_sent: Callable[[], None],
        failed: set[str],
    ) -> exchange.Exchange | None:
        """After the own engine. None: there is nobody else, or not with more luck."""
        if len(failed) >= MOST_PEERS_TRIED:
            return None
        target = await self._routes.route(arrival, failed=frozenset({router.OWN, *failed}))
        if target.peer is None:
            return None
        return await self._peer(target.peer, arrival, request, on_sent)

    async def _peer(
        self,
        peer: Peer,
        arrival: arrivals.Arrival,
        request: Request,
        on_sent: Callable[[], None],
    ) -> exchange.Exchange | None:
        """None: it failed before its first byte."""
        body = arrival.inspected.body
        assert body is not None, "only what is in memory goes to a peer"
        on_sent()
        passed = request.headers.copy()
        passed.popall("Content-Length", None)
        try:
            response = await self._to_peers.send(
                peer, request.method, str(request.target), passed, body, arrival
            )
            upstream = answers.Upstream(response)
            await _first(upstream)
        except answers.BrokenOffError as error:
            reason = route_counts.PeerFailureReason.CONNECTION
            self._routes.failed(peer, forwarding.PeerFailedError(f"{peer.name}: {error}", reason))
            return None
        except forwarding.PeerFailedError as error:
            self._routes.failed(peer, error)
            return None
        return exchange.Exchange(upstream, None)

    async def _own(
        self, arrival: arrivals.Arrival, request: Request, on_sent: Callable[[], None]
    ) -> exchange.Exchange:
        ticket = await self._admitter.admit(arrival)
        try:
            passed = headers.for_engine(request.headers, arrival.caller.tenant, hides_key=self._hides_keys)
            ticket.sent()
            on_sent()
            upstream = await self._to_engine.send(
                proxy.Outgoing(request.method, request.target, passed, self._body(arrival, request, passed))
            )
            try:
                await _first(upstream)
            except answers.BrokenOffError as error:
                raise self._to_engine.broke_off(error) from error
        except BaseException:
            ticket.closed()
            raise
        return exchange.Exchange(upstream, ticket)

    def _body(
        self, arrival: arrivals.Arrival, request: Request, passed: CIMultiDict[str]
    ) -> bytes | upload.Upload:
        body = arrival.inspected.body
        if body is None:
            return request.upload
        passed.popall("Content-Length", None)
        settings = self._settings()
        known = classes.by_name(settings, arrival.inspected.request_class) if settings is not None else None
        priority = known.priority if known is not None else 0
        return self._engine.body_for(body, priority, arrival.caller.tenant)


async def _first(upstream: answers.Upstream) -> None:
    """Waits for the first bytes; whoever does not live to see them gives the answer up."""
    try:
        await upstream.wait_for_first()
    except BaseException:
        upstream.close()
        raise
