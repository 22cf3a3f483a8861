"""How much of an engine's time requests take, by priority: a decaying mean of the last seconds. Pure."""

import math

MEMORY_S = 5.0


class DemandRate:
    """Seconds of work per second."""

    def __init__(self, memory_s: float = MEMORY_S) -> None:
        self._memory_s = memory_s
        self._sums: dict[int, float] = {}
        self._at_s = 0.0

    def add(self, priority: int, cost_s: float, now: float) -> None:
        """So much work of that priority came."""
        self._decay(now)
        self._sums[priority] = self._sums.get(priority, 0.0) + cost_s

    def share(self, priority: int, now: float) -> float:
        """Of exactly that priority."""
        self._decay(now)
        return self._sums.get(priority, 0.0) / self._memory_s

    def above(self, priority: int, now: float) -> float:
        """Of all that are more urgent."""
        self._decay(now)
        return sum(value for key, value in self._sums.items() if key > priority) / self._memory_s

    def priorities(self) -> tuple[int, ...]:
        return tuple(self._sums)

    def _decay(self, now: float) -> None:
        if now <= self._at_s:
            return
        keep = math.exp(-(now - self._at_s) / self._memory_s)
        self._at_s = now
        for key in self._sums:
            self._sums[key] *= keep
