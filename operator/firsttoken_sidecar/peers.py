"""The other replicas: who there is, how they are, and which of them to leave alone for now.

Names are resolved every 5 s, and sooner when a peer fails. While requests come, each peer's `/state` is asked
for every 100 ms, a bounded number at a time; else every few seconds, so that the first request after a pause
finds a picture. Requests never wait for any of this.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

import aiohttp
from pydantic import ValidationError

from firsttoken_api.state import SidecarState
from firsttoken_sidecar import addresses, logs, route_counts
from firsttoken_sidecar.peer import FRESH_S, Peer

RESOLVE_EVERY_S = 5.0
RESOLVE_AT_MOST_EVERY_S = 1.0
UNRESOLVED_LIMIT_S = 60.0
"""A resolver that fails does not make peers disappear, but what nobody has confirmed for so long may be
somebody else's address by now."""
REMEMBERED_S = 150.0
"""A replica that is no longer listed, as in a drain, may still send requests on: so long it is a peer."""
BUSY_FOR_S = 2.0
"""After a request, states are kept fresh so long."""
IDLE_LOOK_EVERY_S = 4.0
UNREADY_LOOK_EVERY_S = 1.0
LOOK_LIMIT_S = 2.0
MOST_LOOKS = 16
"""At the same time. Of more peers than that, each is looked at less often."""
TICK_S = 0.025

logger = logging.getLogger(__name__)


class Peers:
    """All replicas of the service but this one."""

    def __init__(
        self,
        hosts: Iterable[str],
        own_address: str | None,
        ops_port: Callable[[], int],
        session: aiohttp.ClientSession,
        counts: route_counts.RouteCounts,
        clock: Callable[[], float],
        resolver: addresses.Resolve = addresses.resolve,
        on_state: Callable[[str, SidecarState], None] = lambda name, state: None,
    ) -> None:
        """`hosts`: names or addresses, perhaps this replica's own too. `own_address`: None to find it out.
        `ops_port`: of every replica; they are all set up alike. `on_state`: what each look found."""
        self._lookups = {name: addresses.Lookup(name, resolver) for name in hosts}
        self._resolved: dict[str, frozenset[str]] = {}
        self._confirmed_s: dict[str, float] = {}
        self._own_address = addresses.normalized(own_address) if own_address else None
        self._ops_port = ops_port
        self._session = session
        self._counts = counts
        self._clock = clock
        self._on_state = on_state
        self._limited = logs.Limited(logger, clock)
        self._listed_s: dict[str, float] = {}
        self._looks: set[asyncio.Task[None]] = set()
        self._resolve_now = asyncio.Event()
        self._busy_until_s = 0.0
        self.own_name = self._own_address or ""
        """This replica's address, empty while it is not known."""
        self.members: dict[str, Peer] = {}

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to route to by configuration."""
        return not self._lookups

    def is_peer(self, address: str | None) -> bool:
        """Whether the address is that of another replica, now or a moment ago."""
        if address is None or self.is_alone:
            return False
        listed_s = self._listed_s.get(addresses.normalized(address))
        if listed_s is None:
            self._resolve_now.set()  # a new one, perhaps
            return False
        return self._clock() - listed_s <= REMEMBERED_S

    def accepting(self, now: float) -> list[Peer]:
        """Those that requests may be sent to."""
        return [peer for peer in self.members.values() if peer.is_accepting(now)]

    def keep_fresh(self) -> None:
        """A request is here: for a while, states are asked for often."""
        self._busy_until_s = self._clock() + BUSY_FOR_S

    def failed(self, peer: Peer) -> None:
        """It failed a request before the first byte."""
        peer.failed(self._clock())
        self._resolve_now.set()

    async def run(self) -> None:
        """Resolves and looks until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_resolving())
                group.create_task(self._keep_looking())
        finally:
            for look in self._looks:
                look.cancel()
            for lookup in self._lookups.values():
                await lookup.close()

    async def _keep_resolving(self) -> None:
        while True:
            self._resolve_now.clear()
            for name, lookup in self._lookups.items():
                try:
                    self._resolved[name] = await lookup.again()
                    self._confirmed_s[name] = self._clock()
                except addresses.LookupFailedError as error:
                    self._counts.peer_failures[route_counts.PeerFailureReason.LOOKUP] += 1
                    self._limited.warning("peers are not found", error=str(error))
            self._take(self._clock())
            await asyncio.sleep(RESOLVE_AT_MOST_EVERY_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESOLVE_EVERY_S - RESOLVE_AT_MOST_EVERY_S):
                    await self._resolve_now.wait()

    def _take(self, now: float) -> None:
        """What the names resolve to is who there is."""
        listed: set[str] = set()
        for name, found in self._resolved.items():
            if now - self._confirmed_s[name] <= UNRESOLVED_LIMIT_S:
                listed |= found
        for own in [address for address in listed if self._is_own(address)]:
            self.own_name = own
            listed.discard(own)
        if listed != self.members.keys():
            logger.info("peers", extra=logs.fields(count=len(listed), own=self.own_name))
        for address in listed:
            self._listed_s[address] = now
            if address not in self.members:
                self.members[address] = Peer(address)
        for address in self.members.keys() - listed:
            del self.members[address]
        for address in [a for a, listed_s in self._listed_s.items() if now - listed_s > REMEMBERED_S]:
            del self._listed_s[address]

    def _is_own(self, address: str) -> bool:
        if self._own_address is not None:
            return address == self._own_address
        return address == self.own_name or addresses.is_own(address)

    async def _keep_looking(self) -> None:
        while True:
            self._look_around(self._clock())
            await asyncio.sleep(TICK_S)

    def _look_around(self, now: float) -> None:
        is_busy = now <= self._busy_until_s
        due = [
            peer for peer in self.members.values() if peer.is_due(now, self._look_every_s(peer, now, is_busy))
        ]
        due.sort(key=lambda peer: peer.tried_s)
        for peer in due[: max(0, MOST_LOOKS - len(self._looks))]:
            peer.is_being_asked = True
            peer.tried_s = now
            look = asyncio.create_task(self._look(peer))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    @staticmethod
    def _look_every_s(peer: Peer, now: float, is_busy: bool) -> float:
        if is_busy:
            return FRESH_S
        return IDLE_LOOK_EVERY_S if peer.is_accepting(now) else UNREADY_LOOK_EVERY_S

    async def _look(self, peer: Peer) -> None:
        asked_s = self._clock()
        host = f"[{peer.name}]" if ":" in peer.name else peer.name
        try:
            async with self._session.get(
                f"http://{host}:{self._ops_port()}/state",
                timeout=aiohttp.ClientTimeout(total=LOOK_LIMIT_S),
            ) as response:
                body = await response.read()
            if response.status != 200:
                raise aiohttp.ClientError(f"/state answered {response.status}")
            state = SidecarState.model_validate_json(body)
        except (aiohttp.ClientError, OSError, ValidationError) as error:
            # An ending pod closes its port; whoever is no longer listed need not be spoken of.
            peer.failed(self._clock())
            self._counts.peer_failures[route_counts.PeerFailureReason.STATE] += 1
            self._limited.warning("a peer does not say how it is", peer=peer.name, error=type(error).__name__)
            return
        finally:
            peer.is_being_asked = False
        peer.seen(state, state.load, asked_s, self._clock())
        self._on_state(peer.name, state)
