"""Which replica answers a request. Pure.

Three aims pull: where the prompt's prefix is cached, little is computed; where little waits, it is computed
soon; and what stays here needs no hop. All are seconds, and are compared as such: those until the first
token, and once more those of work.

A request goes to the home of its prefix while the work that waits there is within a bound of the mean
(consistent hashing with bounded load), or while the cache hit saves more than the wait costs. Past that, and
for prompts without a home, two random replicas are drawn and the better estimate wins: comparing them all
would send every sidecar to the same one between two looks at its state. Always compared too are this replica,
whose state is the freshest, and the one that has most of the prompt in its cache. Of the own zone two more
are drawn; its replicas are taken while they are within 20 % of the best.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from firsttoken_api.routing import RoutingStrategy

LOAD_BOUND = 1.25
"""The home takes requests up to this multiple of the mean wait."""
DRAWN = 2
SAME_ZONE_MARGIN = 1.2
"""A replica of the same zone is taken while its estimate is within this multiple of the best."""
WORK_WEIGHT = 1.0
"""Work keeps those who come after it waiting, so a second of it counts once more than a second of waiting: a
cached prefix is not computed elsewhere only to begin a moment sooner."""
HOP_S = 0.002
"""What a forward costs."""


class Random(Protocol):
    """The part of `random.Random` that is used; handed in, so that a test repeats exactly."""

    def sample(self, population: Sequence[int], k: int) -> list[int]: ...


class Reason(StrEnum):
    """Why a replica was chosen; a label of `firsttoken_routed_total`."""

    FORWARDED = "forwarded"
    """It came from a peer: one hop at most, so it is answered here."""
    OFF = "off"
    """No routing, or a body that is not in memory and so cannot be sent on."""
    ALONE = "alone"
    """No peer takes requests."""
    HOME = "home"
    OVERFLOW = "overflow"
    """The home has more to do than its bound allows."""
    BALANCED = "balanced"
    """The prompt has no home, or homes are not asked for."""
    FAILOVER = "failover"
    """The first choice failed before the first byte."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica that takes requests, as it looks to one request."""

    name: str
    zone: str
    wait_s: float
    """Expected wait of a request of this class, before its own tokens are computed."""
    first_token_s: float
    """The wait and its own tokens, less those that are taken to be in this replica's cache."""
    hit_tokens: int = 0
    limit_s: float = math.inf
    """It refuses requests whose estimate is larger."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica by name, and why."""

    name: str
    reason: Reason


def choose(
    strategy: RoutingStrategy,
    replicas: Mapping[str, Replica],
    own_name: str,
    home_name: str | None,
    own_zone: str,
    random: Random,
) -> Choice:
    """The replica for one request. `replicas`: all that take requests, this one among them if it does.

    `home_name`: where the prefix belongs, None if it has no home. At least one replica is needed.
    """
    assert replicas, "nobody takes requests: there is nothing to choose"
    if len(replicas) == 1:
        return Choice(next(iter(replicas)), Reason.ALONE)
    drawn = _drawn(replicas, own_name, own_zone, random)
    if strategy is not RoutingStrategy.PREFIX_AWARE:
        return Choice(_best(drawn, own_name, own_zone).name, Reason.BALANCED)
    warmest = max(replicas.values(), key=lambda each: each.hit_tokens)
    if warmest.hit_tokens > max(each.hit_tokens for each in drawn.values()):
        drawn[warmest.name] = warmest
    best = _best(drawn, own_name, own_zone)
    home = replicas.get(home_name) if home_name is not None else None
    if home is None:
        return Choice(best.name, Reason.BALANCED)
    if home is best or _cost_s(home, own_name) <= _cost_s(best, own_name):
        return Choice(home.name, Reason.HOME)
    if not home.hit_tokens and _cost_s(home, own_name) > LOAD_BOUND * _cost_s(best, own_name):
        return Choice(best.name, Reason.OVERFLOW)
    if is_within_bound(home, replicas) and home.first_token_s <= home.limit_s:
        return Choice(home.name, Reason.HOME)
    return Choice(best.name, Reason.OVERFLOW)


def is_within_bound(home: Replica, replicas: Mapping[str, Replica]) -> bool:
    """Whether what waits at the home is at most the bound times the mean, this request's work included."""
    own_work_s = home.first_token_s - home.wait_s
    all_work_s = sum(each.wait_s for each in replicas.values()) + own_work_s
    return home.wait_s <= LOAD_BOUND * all_work_s / len(replicas)


def _drawn(
    replicas: Mapping[str, Replica], own_name: str, own_zone: str, random: Random
) -> dict[str, Replica]:
    others = [each for each in replicas.values() if each.name != own_name]
    pools = [others]
    if own_zone:
        near = [each for each in others if each.zone == own_zone]
        if len(near) < len(others):
            pools.append(near)
    drawn = {own_name: replicas[own_name]} if own_name in replicas else {}
    for pool in pools:
        for index in random.sample(range(len(pool)), min(DRAWN, len(pool))):
            drawn[pool[index].name] = pool[index]
    return drawn


def _best(drawn: Mapping[str, Replica], own_name: str, own_zone: str) -> Replica:
    costs_s = {name: _cost_s(each, own_name) for name, each in drawn.items()}
    best = drawn[min(costs_s, key=costs_s.__getitem__)]
    if not own_zone or best.zone == own_zone:
        return best
    margin_s = SAME_ZONE_MARGIN * best.first_token_s
    near = [n for n, each in drawn.items() if each.zone == own_zone and each.first_token_s <= margin_s]
    return drawn[min(near, key=costs_s.__getitem__, default=best.name)]


def _cost_s(replica: Replica, own_name: str) -> float:
    """Seconds to the first token, and what the work for it costs others."""
    work_s = replica.first_token_s - replica.wait_s
    hop_s = 0.0 if replica.name == own_name else HOP_S
    return replica.first_token_s + WORK_WEIGHT * work_s + hop_s
