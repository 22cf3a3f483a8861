"""By how much first tokens come later than expected, learned from those that came. Pure.

Each first token gives one error: the time it took over the time that was expected. What is asked for is not
the mean but a high quantile, and only of estimates like those that decide: far below the limit an error of
half a step changes nothing. So an error counts by how near its estimate was to the limit, and less as it
ages. A request that still waits past its corrected estimate is an error already, not only when it ends.

**Why not the 90th percentile.** Under load nearly all that is let in is let in close to its limit. If each of
those had a chance of one in ten to be late, one in ten would be, and the objective is a 95th percentile. So
the quantile is such that of requests right at their limit about one in thirty is late.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import NormalDist

QUANTILE = 0.967
MOST_ERRORS = 400
MEMORY_S = 90.0
"""An error counts half after about a minute."""
PRIOR_RATIO = 1.25
"""Assumed quantile while nothing was seen."""
PRIOR_WEIGHT = 12.0
"""In errors right at the limit."""
NEARNESS = 0.5
"""An error counts 1/e when its corrected estimate is this far from the limit, in logarithms."""
LEAST_WEIGHT = 0.02
LARGEST_RATIO = 20.0
SMALLEST_FACTOR = 1.0
"""A machine can stand still for a moment at any time: an estimate is never taken for too high."""
REFRESH_S = 0.1
_PRIOR_POINTS = 32


class Correction:
    """The errors of one class's estimates."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float, float]] = deque(maxlen=MOST_ERRORS)  # (when, expected, ratio)
        self._factor = PRIOR_RATIO
        self._solved_at_s = -math.inf
        self._limit_s = 0.0

    def note(self, expected_s: float, actual_s: float, now: float) -> None:
        """A first token came."""
        if expected_s > 0:
            self._errors.append((now, expected_s, min(actual_s / expected_s, LARGEST_RATIO)))

    def factor(self, limit_s: float, now: float, late: Iterable[tuple[float, float]] = ()) -> float:
        """What an estimate near the limit is to be multiplied by. late: (expected, waited so far) of requests
        that wait longer than was thought likely."""
        if now - self._solved_at_s >= REFRESH_S or limit_s != self._limit_s:
            self._solved_at_s, self._limit_s = now, limit_s
            self._factor = self._solve(limit_s, now, late)
        return self._factor

    def _solve(self, limit_s: float, now: float, late: Iterable[tuple[float, float]]) -> float:
        weighted = [
            (ratio, _weight(expected_s * self._factor, limit_s, now - when))
            for when, expected_s, ratio in self._errors
        ]
        weighted += [
            (min(waited_s / expected_s, LARGEST_RATIO), _weight(expected_s * self._factor, limit_s, 0.0))
            for expected_s, waited_s in late
            if expected_s > 0
        ]
        weighted += _PRIOR
        weighted.sort()
        wanted = QUANTILE * sum(weight for _, weight in weighted)
        below = 0.0
        for ratio, weight in weighted:
            below += weight
            if below >= wanted:
                return max(ratio, SMALLEST_FACTOR)
        return max(weighted[-1][0], SMALLEST_FACTOR)


def _weight(likely_s: float, limit_s: float, age_s: float) -> float:
    if limit_s <= 0 or likely_s <= 0:
        return 0.0
    distance = math.log(likely_s / limit_s) / NEARNESS
    return max(math.exp(-distance * distance), LEAST_WEIGHT) * math.exp(-max(age_s, 0.0) / MEMORY_S)


def _prior() -> list[tuple[float, float]]:
    """Errors that were not seen: log-normal around 1, with their quantile at the assumed one."""
    normal = NormalDist()
    spread = math.log(PRIOR_RATIO) / normal.inv_cdf(QUANTILE)
    places = ((point + 0.5) / _PRIOR_POINTS for point in range(_PRIOR_POINTS))
    return [(math.exp(spread * normal.inv_cdf(place)), PRIOR_WEIGHT / _PRIOR_POINTS) for place in places]


_PRIOR = _prior()
