"""By how much first tokens come later than expected, learned from those that came. Pure.

What is asked for is not the mean error but a high quantile, and only of estimates like those that decide:
far below the limit an error of half a step changes nothing. So an error counts by how near its estimate was
to the limit, and less as it ages. A request that still waits past its likely time is an error already, not
only when it ends.

Errors grow with what is estimated, but slower: a wait is the sum of steps, and each step errs by itself. So
an error is taken relative to the root of the estimate, in a unit that is a part of the limit at the limit.

What the quantile misses (errors that come late, or in bursts) is corrected by what happens: each breach
raises the spread, each request near its limit that kept it lowers it, by as much less as breaches are to be
rarer.

**Why not the 90th percentile.** Under load nearly all that is let in is let in close to its limit. If each of
those had a chance of one in ten to be late, one in ten would be, and the objective is a 95th percentile. So
the quantile is such that of requests right at their limit about one in twenty is, and fewer of all.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import NormalDist

QUANTILE = 0.95
MOST_ERRORS = 400
MEMORY_S = 90.0
"""An error counts half after about a minute."""
PRIOR_SPREAD = 0.2
"""Assumed quantile while nothing was seen: an estimate at the limit is late by a fifth."""
PRIOR_WEIGHT = 12.0
"""In errors right at the limit."""
NEARNESS = 0.5
"""An error counts 1/e when its estimate is this far from the limit, in logarithms."""
LEAST_WEIGHT = 0.005
"""Of estimates far below the limit, so that something is known before it is reached. One far above it is from
a time with another limit and says nothing."""
LARGEST_SPREAD = 10.0
LEAST_PART = 0.4
"""An estimate is taken to be too high by so much at most."""
REFRESH_S = 0.1
BREACHES = 0.035
"""Of those let in near their limit, what is aimed at."""
GAIN = 0.05
MOST_BIAS = 0.8
QUIET_S = 2.0
BIAS_MEMORY_S = 20.0
LEAST_BIAS = -0.15
KEPT_PART = 0.5
SHORTEST_S = 1e-6
_PRIOR_POINTS = 32


def likely_s(expected_s: float, spread: float, limit_s: float) -> float:
    """When a first token that is expected then has come, but for one in twenty."""
    if math.isinf(limit_s):
        return expected_s
    assert expected_s >= 0, expected_s
    return max(expected_s + spread * math.sqrt(expected_s * limit_s), LEAST_PART * expected_s)


class Correction:
    """The errors of one class's estimates."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float, float]] = deque(maxlen=MOST_ERRORS)  # when, expected, actual
        self._spread = PRIOR_SPREAD
        self._bias = 0.0
        self._decided_at_s = self._faded_at_s = -math.inf
        self._solved_at_s = -math.inf
        self._limit_s = 0.0

    def note(self, expected_s: float, actual_s: float, now: float) -> None:
        """A first token came."""
        if expected_s > 0:
            self._errors.append((now, expected_s, actual_s))

    def decided(self, now: float, *, is_breach: bool, is_near: bool) -> None:
        """A request that was let in kept its limit or did not. is_near: its likely time was close to it."""
        self._fade(now)
        self._decided_at_s = now
        if is_breach:
            self._bias = min(self._bias + GAIN * (1 - BREACHES), MOST_BIAS)
        elif is_near:
            self._bias = max(self._bias - GAIN * BREACHES, LEAST_BIAS)

    def spread(self, limit_s: float, now: float, late: Iterable[tuple[float, float]] = ()) -> float:
        """For `likely_s`. late: (expected, waited so far) of requests that wait longer than was likely."""
        if math.isinf(limit_s):
            return 0.0
        if now - self._solved_at_s >= REFRESH_S or limit_s != self._limit_s:
            self._solved_at_s, self._limit_s = now, limit_s
            self._spread = self._solve(limit_s, now, late)
            self._fade(now)
        return self._spread + self._bias

    @property
    def kept_spread(self) -> float:
        """As `spread` was lately, for who was let in: it is asked again with each one that would go first
        whether that makes it late, so half of what one estimate errs by is enough."""
        return KEPT_PART * self._spread + self._bias

    def _fade(self, now: float) -> None:
        """Whoever lets nobody in learns nothing: while nothing is decided, what breaches taught wears off."""
        since_s = max(self._faded_at_s, self._decided_at_s + QUIET_S)
        if now > since_s:
            self._bias *= math.exp(-(now - since_s) / BIAS_MEMORY_S)
            self._faded_at_s = now

    def _solve(self, limit_s: float, now: float, late: Iterable[tuple[float, float]]) -> float:
        weighted = list(_PRIOR)
        for when, expected_s, actual_s in self._errors:
            weighted.append(self._weighted(expected_s, actual_s, limit_s, now - when))
        for expected_s, waited_s in late:
            weighted.append(self._weighted(expected_s, waited_s, limit_s, 0.0))
        weighted.sort()
        wanted = QUANTILE * sum(weight for _, weight in weighted)
        below = 0.0
        for spread, weight in weighted:
            below += weight
            if below >= wanted:
                return spread
        return weighted[-1][0]

    def _weighted(
        self, expected_s: float, actual_s: float, limit_s: float, age_s: float
    ) -> tuple[float, float]:
        """An error, and what it counts."""
        spread = min((actual_s - expected_s) / (math.sqrt(expected_s) * math.sqrt(limit_s)), LARGEST_SPREAD)
        likely = max(likely_s(expected_s, self._spread, limit_s), SHORTEST_S)
        distance = math.log(likely / limit_s) / NEARNESS
        weight = math.exp(-distance * distance)
        if distance < 0:
            weight = max(weight, LEAST_WEIGHT)
        return spread, weight * math.exp(-max(age_s, 0.0) / MEMORY_S)


def _prior() -> list[tuple[float, float]]:
    """Errors that were not seen: around 0, with their quantile at the assumed one."""
    normal = NormalDist()
    scale = PRIOR_SPREAD / normal.inv_cdf(QUANTILE)
    places = ((point + 0.5) / _PRIOR_POINTS for point in range(_PRIOR_POINTS))
    return [(scale * normal.inv_cdf(place), PRIOR_WEIGHT / _PRIOR_POINTS) for place in places]


_PRIOR = _prior()
