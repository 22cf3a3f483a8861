"""Who may use how much of the line while tenants compete for it. Pure.

While only one tenant asks it may fill the line to the limit. While others wait, or asked lately, a tenant
whose waiting work is more than its weighted share is let in only up to a part of the limit: what is left
above that part is for those who have less than theirs. Nothing is held back from the engine: the line is
never empty while anybody floods it.
"""

import math
from collections.abc import Mapping

RECENTLY_S = 10.0
SHARE_PART = 0.6
"""Of its share: the others' requests wait for what was let in before them, and for what they go before."""
LEAST_PART = 0.2
"""However many compete: below it the line would run empty."""
MOST_TENANTS = 1024
LEAST_WORK_S = 1e-4


class Fairness:
    """When each tenant last asked, and its weight."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float]] = {}  # tenant -> (when, weight), the latest last
        self._used: dict[str, float] = {}
        """Work that was let in, decaying."""
        self._used_at_s = 0.0

    def note_asked(self, tenant: str, weight: float, now: float) -> None:
        """Whether or not it was let in."""
        self._asked.pop(tenant, None)
        self._asked[tenant] = (now, weight)
        while self._asked:
            oldest = next(iter(self._asked))
            if now - self._asked[oldest][0] <= RECENTLY_S and len(self._asked) <= MOST_TENANTS:
                break
            del self._asked[oldest]

    def note_let_in(self, tenant: str, work_s: float, now: float) -> None:
        self._decay(now)
        self._used[tenant] = self._used.get(tenant, 0.0) + work_s

    def share(self, tenant: str, weight: float, now: float) -> float:
        """Of a tenant that asks now, among all that asked lately: 0..1."""
        others = sum(
            other
            for name, (when, other) in self._asked.items()
            if name != tenant and now - when <= RECENTLY_S
        )
        return weight / (weight + others)

    def part(
        self, tenant: str, weight: float, work_s: float, waiting_s: Mapping[str, float], now: float
    ) -> float:
        """The part of the limit, 0..1, up to which a request of so much work is let in.

        waiting_s: work that waits, by tenant, without this request.
        """
        share = self.share(tenant, weight, now)
        if share >= 1:
            return 1.0
        own_s = waiting_s.get(tenant, 0.0) + work_s
        total_s = sum(waiting_s.values()) + work_s
        if own_s <= share * total_s:
            return 1.0
        self._decay(now)
        if self._used.get(tenant, 0.0) <= share * sum(self._used.values()):
            return 1.0  # a short line says little: what it got lately is less than its share
        return max(SHARE_PART * share, LEAST_PART)

    def _decay(self, now: float) -> None:
        keep = math.exp(-max(now - self._used_at_s, 0.0) / RECENTLY_S)
        self._used_at_s = max(now, self._used_at_s)
        self._used = {name: work * keep for name, work in self._used.items() if work * keep > LEAST_WORK_S}
