"""How much of an engine's time requests take, by priority: decaying means of the last seconds. Pure."""

import math

from firsttoken_api.overtaking import Arriving

MEMORY_S = 5.0
SURGE_MEMORY_S = 2.0
"""A surge must not be seen late: less urgent ones would be let in, and be overtaken."""


class DemandRate:
    """Seconds of work per second."""

    def __init__(self, memory_s: float = MEMORY_S) -> None:
        self._memory_s = memory_s
        self._sums: dict[int, tuple[float, float]] = {}
        """Of work and of its square."""
        self._at_s = 0.0

    def add(self, priority: int, cost_s: float, now: float) -> None:
        """So much work of that priority came."""
        self._decay(now)
        work_s, squares = self._sums.get(priority, (0.0, 0.0))
        self._sums[priority] = (work_s + cost_s, squares + cost_s * cost_s)

    def share(self, priority: int, now: float) -> float:
        """Of exactly that priority."""
        self._decay(now)
        return self._sums.get(priority, (0.0, 0.0))[0] / self._memory_s

    def above(self, priority: int, speed: float, now: float) -> Arriving:
        """Of all that are more urgent, on an engine that starts so much work in a second."""
        self._decay(now)
        urgent = [sums for key, sums in self._sums.items() if key > priority]
        work_s, squares = sum(work for work, _ in urgent), sum(square for _, square in urgent)
        return Arriving(work_s / self._memory_s / speed, squares / self._memory_s / speed**2)

    def priorities(self) -> tuple[int, ...]:
        return tuple(self._sums)

    def _decay(self, now: float) -> None:
        if now <= self._at_s:
            return
        keep = math.exp(-(now - self._at_s) / self._memory_s)
        self._at_s = now
        for key, (work_s, squares) in self._sums.items():
            self._sums[key] = (work_s * keep, squares * keep)


class Demand(DemandRate):
    """The same, and no less than it is just now."""

    def __init__(self) -> None:
        super().__init__()
        self._surge = DemandRate(SURGE_MEMORY_S)

    def add(self, priority: int, cost_s: float, now: float) -> None:
        super().add(priority, cost_s, now)
        self._surge.add(priority, cost_s, now)

    def above(self, priority: int, speed: float, now: float) -> Arriving:
        rates = super().above(priority, speed, now), self._surge.above(priority, speed, now)
        return max(rates, key=lambda one: one.share)
