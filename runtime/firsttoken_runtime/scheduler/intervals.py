"""The 95th percentile of the gaps between tokens, over the last seconds.

Hundreds of gaps a step are counted, not kept: in buckets 5 % wide, one set a second.
"""

import math
from collections import Counter, deque

_WIDTH = math.log(1.05)
_SHORTEST_S = 1e-6
_RECOMPUTE_EVERY_S = 0.25


class IntervalWindow:
    """Counts of the last `window_s` seconds, to the second."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seconds: deque[tuple[int, Counter[int]]] = deque()
        self._counts: Counter[int] = Counter()
        self._p95_s = 0.0
        self._computed_at_s = -math.inf

    def add(self, now: float, interval_s: float, count: int = 1) -> None:
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Counter()))
            self._forget(now)  # whether or not anybody asks
        bucket = math.floor(math.log(max(interval_s, _SHORTEST_S)) / _WIDTH)
        self._seconds[-1][1][bucket] += count
        self._counts[bucket] += count

    def p95_s(self, now: float) -> float:
        """0 = no gap in the window. At most a quarter of a second old, and 2.5 % off."""
        if now - self._computed_at_s >= _RECOMPUTE_EVERY_S:
            self._computed_at_s = now
            self._forget(now)
            self._p95_s = self._percentile()
        return self._p95_s

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] < now - self._window_s:
            _, counts = self._seconds.popleft()
            self._counts -= counts  # drops what is at zero

    def _percentile(self) -> float:
        above = 0.05 * self._counts.total()
        for bucket in sorted(self._counts, reverse=True):
            above -= self._counts[bucket]
            if above < 0:
                return math.exp((bucket + 0.5) * _WIDTH)
        return 0.0
