"""When a refused request may come again and will be let in: the promise behind Retry-After. Pure.

Each refusal takes a place in a line of its tenant that moves at a part of the speed at which the engine
starts requests. The time at which that place comes up is what Retry-After says; who comes back then, with the
same body, goes before those who come for the first time. They in turn are let in only up to a headroom below
the limit while somebody is expected, so that simultaneous returners do not find a full line.

Many never come back. How many do is learned for each tenant, and a place costs only that part of its work:
where nobody returns, the times stay short and the headroom is nothing.
"""

import bisect
import math
from collections import deque
from dataclasses import dataclass

Key = tuple[str, bytes]
"""Tenant and the hash of the body."""

DENSITY = 0.7
"""The part of the engine's speed that is promised away; the rest is for those who come for the first time."""
LATEST_S = 1.5
"""So much after its time a place is kept, and a tenth of what was waited."""
EARLIEST_S = 0.25
MOST_PLACES = 8192
LONGEST_RETRY_AFTER_S = 600
RETURNED_MEMORY = 0.97
"""Weight of the past after one more place came up."""
DOUBT = 6.0
"""So many places of which nobody knows whether they are taken up: for the line they are, for the headroom
they are not. A time that is too late is kept all the same; room kept for nobody is wasted."""


@dataclass(slots=True, eq=False)
class Place:
    """A time at which one refused request is welcome."""

    key: Key
    due_s: float
    until_s: float
    cost_s: float
    priority: int = 0


class Reservations:
    """All places that were given and are not over."""

    def __init__(self) -> None:
        self._by_key: dict[Key, deque[Place]] = {}
        self._by_due: list[Place] = []
        self._next_s: dict[tuple[str, int], float] = {}
        """When the next place of a tenant comes up, by priority: the urgent do not stand behind others."""
        self._came_up: dict[str, tuple[float, float]] = {}
        """By tenant: places that came up lately, and those of them that were taken up."""

    def __len__(self) -> int:
        return len(self._by_due)

    def returned_share(self, tenant: str, doubtful: float) -> float:
        """The part of a tenant's places that are taken up, where the doubtful ones count as given."""
        came_up, taken = self._came_up.get(tenant, (0.0, 0.0))
        return (taken + doubtful * DOUBT) / (came_up + DOUBT)

    def refuse(
        self,
        key: Key,
        cost_s: float,
        *,
        now: float,
        wait_s: float,
        speed: float,
        share: float,
        priority: int = 0,
    ) -> int:
        """-> Retry-After, whole seconds.

        wait_s: until there is room again if nobody else comes; speed: seconds of work that the engine starts
        in a second for requests of that priority; share: of its tenant, 0..1.
        """
        self.expire(now)
        for place in self._by_key.get(key, ()):  # too early: it has its time already
            if place.due_s > now:
                return max(1, math.ceil(place.due_s - now))
        tenant = key[0]
        line = (tenant, priority)
        next_s = max(self._next_s.get(line, 0.0), now + wait_s)
        retry_after_s = min(max(1, math.ceil(next_s - now)), LONGEST_RETRY_AFTER_S)
        if retry_after_s < LONGEST_RETRY_AFTER_S:
            pace = max(speed * DENSITY * share, 1e-3)
            self._next_s[line] = next_s + cost_s * self.returned_share(tenant, 1.0) / pace
        self._keep(key, cost_s, priority, now, retry_after_s)
        return retry_after_s

    def claim(self, key: Key, now: float) -> Place | None:
        """The place of a request that has come again in time. It stays until `take`."""
        self.expire(now)
        for place in self._by_key.get(key, ()):
            if place.due_s - EARLIEST_S <= now:
                return place
        return None

    def take(self, place: Place) -> None:
        """It came back, whatever became of it then."""
        self._note_returned(place.key[0], 1.0)
        self._forget(place)

    def expected_s(self, now: float, horizon_s: float, priority: int = 0) -> float:
        """Seconds of work of those who are expected to come back within so many seconds, and are no less
        urgent than that."""
        self.expire(now)
        until = bisect.bisect_right(self._by_due, now + horizon_s, key=_due_s)
        return sum(
            place.cost_s * self.returned_share(place.key[0], 0.0)
            for place in self._by_due[:until]
            if place.priority >= priority
        )

    def expire(self, now: float) -> None:
        """Places whose time is over were not taken up."""
        over = bisect.bisect_left(self._by_due, now - LATEST_S, key=_due_s)
        for place in [one for one in self._by_due[:over] if one.until_s <= now]:
            self._note_returned(place.key[0], 0.0)
            self._forget(place)

    def _keep(self, key: Key, cost_s: float, priority: int, now: float, retry_after_s: int) -> None:
        if len(self._by_due) >= MOST_PLACES:
            return
        due_s = now + retry_after_s
        place = Place(key, due_s, due_s + LATEST_S + retry_after_s / 10, cost_s, priority)
        self._by_key.setdefault(key, deque()).append(place)
        bisect.insort(self._by_due, place, key=_due_s)

    def _forget(self, place: Place) -> None:
        index = bisect.bisect_left(self._by_due, place.due_s, key=_due_s)
        del self._by_due[self._by_due.index(place, index)]
        places = self._by_key[place.key]
        places.remove(place)
        if not places:
            del self._by_key[place.key]

    def _note_returned(self, tenant: str, taken: float) -> None:
        came_up, before = self._came_up.get(tenant, (0.0, 0.0))
        self._came_up[tenant] = (came_up * RETURNED_MEMORY + 1.0, before * RETURNED_MEMORY + taken)


def _due_s(place: Place) -> float:
    return place.due_s
