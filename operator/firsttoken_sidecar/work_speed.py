"""How much of requests' own work an engine starts in a second while somebody waits. Pure.

A step costs something whatever is in it, so an engine that always has work does less than a second of
requests' work in a second. How much less is seen by what it starts. Only times in which somebody waited
count: an engine that waits for work says nothing about how fast it could be.
"""

import math

MEMORY_S = 10.0
"""Of times in which somebody waited."""
ASSUMED = 0.7
"""Until something was seen, as if for ASSUMED_FOR_S."""
ASSUMED_FOR_S = 1.0
LEAST = 0.05


class WorkSpeed:
    """Seconds of work a second."""

    def __init__(self) -> None:
        self._work_s = ASSUMED * ASSUMED_FOR_S
        self._time_s = ASSUMED_FOR_S
        self._since_s: float | None = None
        """Up to when waiting was counted; None: nobody waits."""

    @property
    def per_s(self) -> float:
        return max(self._work_s / self._time_s, LEAST)

    def joined(self, now: float) -> None:
        """Somebody waits."""
        if self._since_s is None:
            self._since_s = now

    def started(self, cost_s: float, now: float, *, is_line_empty: bool) -> None:
        """A request of that work left the line with its first token."""
        if self._since_s is not None:
            waited_s = max(now - self._since_s, 0.0)
            keep = math.exp(-waited_s / MEMORY_S)
            self._work_s = self._work_s * keep + cost_s
            self._time_s = self._time_s * keep + waited_s
        self._since_s = None if is_line_empty else now

    def left(self, *, is_line_empty: bool) -> None:
        """A request left the line without one."""
        if is_line_empty:
            self._since_s = None
