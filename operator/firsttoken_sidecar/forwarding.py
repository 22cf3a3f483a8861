"""The one hop: sends a request to a peer and brings back the start of its answer.

Whatever goes wrong before that start is a PeerFailedError, and the request may be tried elsewhere: nothing of
an answer has been seen. After it nothing is repeated. Some statuses of a peer count as failures too: they say
that this replica did not answer, not what the answer is.
"""

import asyncio
from collections.abc import Callable, Mapping

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from firsttoken_api import names
from firsttoken_sidecar import arrivals, hop
from firsttoken_sidecar.peer import Peer
from firsttoken_sidecar.route_counts import PeerFailureReason

CONNECT_LIMIT_S = 1.0
POOL_KEEPALIVE_S = 15.0
"""Shorter than a peer's own limit, so that it does not close a connection under a request."""
ELSEWHERE = {
    401: PeerFailureReason.REFUSED,
    403: PeerFailureReason.REFUSED,
    429: PeerFailureReason.REFUSED,
    502: PeerFailureReason.ENGINE,
    503: PeerFailureReason.UNAVAILABLE,
}
"""Statuses of a peer for which the request is tried elsewhere. The key was found good here: a peer that says
otherwise has not read the newest keys yet."""
_SKIPPED_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class PeerFailedError(Exception):
    """A peer gave no start of an answer."""

    def __init__(self, message: str, reason: PeerFailureReason) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def is_its_fault(self) -> bool:
        """Whether to leave the peer alone for a while: not if it only had no room for this request."""
        return self.reason is not PeerFailureReason.REFUSED


def session(own_address: str | None) -> aiohttp.ClientSession:
    """Connections to peers, from the address that they know this replica by."""
    local_addr = (own_address, 0) if own_address else None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=POOL_KEEPALIVE_S, local_addr=local_addr),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIPPED_AUTOMATIC,
        auto_decompress=False,
    )


class Forwarding:
    """Sends requests to peers."""

    def __init__(
        self, client: aiohttp.ClientSession, http_port: Callable[[], int], clock: Callable[[], float]
    ) -> None:
        """`http_port`: of every replica; they are all set up alike."""
        self._client = client
        self._http_port = http_port
        self._clock = clock

    async def send(
        self,
        peer: Peer,
        method: str,
        raw_target: str,
        headers: Mapping[str, str],
        body: bytes,
        arrival: arrivals.Arrival,
    ) -> aiohttp.ClientResponse:
        """The answer once it has begun; the caller releases or closes it. Raises PeerFailedError.

        `raw_target`: path and query as the client sent them. `headers`: a multidict without hop-by-hop ones.
        """
        passed = CIMultiDict(headers)
        passed[names.HEADER_HOP] = hop.value(self._clock() - arrival.arrival_s)
        host = f"[{peer.name}]" if ":" in peer.name else peer.name
        url = URL(f"http://{host}:{self._http_port()}{raw_target}", encoded=True)
        try:
            answer = await self._begun(peer, method, url, passed, body)
        finally:
            peer.answers(id(arrival))
        reason = ELSEWHERE.get(answer.status)
        if reason is not None:
            answer.close()
            raise PeerFailedError(f"{peer.name} answered {answer.status}", reason)
        return answer

    async def _begun(
        self, peer: Peer, method: str, url: URL, headers: CIMultiDict[str], body: bytes
    ) -> aiohttp.ClientResponse:
        """Waits for the start of the answer, or until the peer counts as gone."""
        sending = asyncio.ensure_future(
            self._client.request(method, url, headers=headers, data=body, allow_redirects=False)
        )
        gone = asyncio.ensure_future(peer.gone.wait())
        is_taken = False
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise PeerFailedError(f"{peer.name} has gone silent", PeerFailureReason.SILENT)
            answer = sending.result()
            is_taken = True
            return answer
        except (aiohttp.ClientError, OSError) as error:
            raise PeerFailedError(
                f"{peer.name}: {type(error).__name__}", PeerFailureReason.CONNECTION
            ) from error
        finally:
            gone.cancel()
            if not is_taken:
                # Perhaps the client left. The peer is told by a closed connection, also when its answer
                # began in the same moment.
                sending.add_done_callback(_let_go)
                sending.cancel()


def _let_go(sending: asyncio.Future[aiohttp.ClientResponse]) -> None:
    if not sending.cancelled() and sending.exception() is None:
        sending.result().close()
