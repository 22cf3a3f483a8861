"""Decides for each request whether it is answered here or by a peer, and keeps book of it.

The policy is in `routing`, `ring` and `prefix_memory`; this gathers for it what is known now: the own engine
as it is, the peers as they were at their last look, with what was sent there since.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.routing import RoutingStrategy
from firsttoken_api.state import LoadState
from firsttoken_sidecar import (
    arrivals,
    classes,
    facing,
    forwarding,
    inspection,
    prefix_memory,
    ring,
    route_counts,
    routing,
)
from firsttoken_sidecar.peer import Peer
from firsttoken_sidecar.peers import Peers

OWN = ""
"""The own engine, in a set of names that have failed."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes; `peer` None: to the own engine."""

    peer: Peer | None
    reason: routing.Reason


class Router:
    """The routing of one sidecar."""

    def __init__(
        self,
        strategy: RoutingStrategy,
        zone: Callable[[], str],
        known: Peers,
        counts: route_counts.RouteCounts,
        clock: Callable[[], float],
        *,
        own_load: Callable[[], LoadState | None],
        is_own_accepting: Callable[[], bool],
        settings: Callable[[], HotSettings | None],
        random: Random | None = None,
    ) -> None:
        """`zone`: of this node, empty while unknown. `settings`: in force, for the priority of a class."""
        self._strategy = strategy
        self._zone = zone
        self._peers = known
        self._counts = counts
        self._clock = clock
        self._own_load = own_load
        self._is_own_accepting = is_own_accepting
        self._settings = settings
        self._random = random if random is not None else Random()
        self._memory = prefix_memory.PrefixMemory()
        self._ring = ring.Ring(())

    async def route(self, arrival: arrivals.Arrival, failed: Collection[str] = ()) -> Target:
        """Where the request goes. `failed`: names of peers, or OWN, that have been tried in vain.

        The own engine is the answer whenever there is nobody else, whether it has failed or not.
        """
        asked = arrival.inspected
        if self._strategy is RoutingStrategy.NONE or self._peers.is_alone or asked.body is None:
            return self._chosen(Target(None, routing.Reason.OFF))
        if arrival.is_forwarded:
            self._memory.sent(asked.prefix_keys, self._peers.own_name, self._clock())
            return self._chosen(Target(None, routing.Reason.FORWARDED))
        self._peers.keep_fresh()
        return self._chosen(self._decide(arrival, failed))

    def failed(self, peer: Peer, error: forwarding.PeerFailedError) -> None:
        """The peer failed a request before the first byte."""
        self._counts.peer_failures[error.reason] += 1
        if error.is_its_fault:
            self._peers.failed(peer)

    def is_peer(self, address: str | None) -> bool:
        """Whether a hop header from there is to be believed."""
        return self._peers.is_peer(address)

    def _decide(self, arrival: arrivals.Arrival, failed: Collection[str]) -> Target:
        asked = arrival.inspected
        now = self._clock()
        peers = {peer.name: peer for peer in self._peers.accepting(now) if peer.name not in failed}
        own_name = self._peers.own_name
        keys = asked.prefix_keys
        if not failed:
            self._memory.arrived(keys, now)
        pieces = self._memory.cached_pieces(keys, now)
        is_own_accepting = OWN not in failed and self._is_own_accepting()
        if not peers and not is_own_accepting:
            return Target(None, routing.Reason.ALONE)
        largest_share = routing.LOAD_BOUND / (len(peers) + is_own_accepting)
        label = self._memory.label(keys, largest_share, now)
        priority = self._priority(asked)

        looks = [
            facing.Look(name, peer.zone, peer.load, peer.unseen_tokens(), now - peer.asked_s)
            for name, peer in peers.items()
        ]
        if is_own_accepting:
            looks.append(facing.Look(own_name, self._zone(), self._own_load()))
        home = None
        if label.key is not None and self._strategy is RoutingStrategy.PREFIX_AWARE:
            home = self._home(label.key, {look.name for look in looks})
        replicas = {
            look.name: facing.replica(
                look,
                asked,
                priority,
                known_pieces=max(pieces.get(look.name, 0), label.common_pieces),
                expected_pieces=label.expected_pieces if look.name == home else 0,
            )
            for look in looks
        }
        choice = routing.choose(self._strategy, replicas, own_name, home, self._zone(), self._random)
        self._memory.sent(keys, choice.name, now)
        peer = peers.get(choice.name)
        if peer is not None:
            hit_tokens = replicas[choice.name].hit_tokens
            peer.sent(id(arrival), asked.estimated_prompt_tokens - hit_tokens, now)
        return Target(peer, routing.Reason.FAILOVER if failed else choice.reason)

    def _home(self, key: bytes, accepting: Collection[str]) -> str | None:
        members = {*self._peers.members, self._peers.own_name}
        if members != self._ring.members:
            self._ring = ring.Ring(members)
        return self._ring.home(key, accepting)

    def _priority(self, asked: inspection.Inspected) -> int:
        settings = self._settings()
        named = classes.by_name(settings, asked.request_class) if settings is not None else None
        return named.priority if named is not None else 0

    def _chosen(self, target: Target) -> Target:
        self._counts.routed[target.reason] += 1
        return target
