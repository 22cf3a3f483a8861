"""How much of a step prompts may have while answers run: less while tokens come slower than promised.

The percentile of 30 s remembers a bad second for half a minute. So the budget shrinks only while the
last seconds are too slow as well, else it would be at its least long before the percentile moves;
and it grows fast up to where it was last too much, slowly from there on.
"""

import math

from firsttoken_runtime.scheduler import speed
from firsttoken_runtime.scheduler.limits import MIN_CHUNK_TOKENS

ADJUST_EVERY_S = 1.0
SHRINK = 0.7
GROW = 1.25
GROW_BEYOND = 1.05
"""Past the last budget that was too much."""
MARGIN = 0.95
"""Grow only while this far below the objective."""


class PrefillPace:
    """The prefill budget of a step beside decodes, in tokens."""

    def __init__(self) -> None:
        self._tokens = math.inf
        self._too_much = math.inf
        self._adjusted_at_s = -math.inf

    def budget_tokens(
        self, most_tokens: int, objective_s: float | None, measured: speed.Speed, now: float
    ) -> int:
        """At most `most_tokens`, and not below one chunk of 64 unless that is."""
        if objective_s is None:
            self._tokens = self._too_much = math.inf
            return most_tokens
        if now - self._adjusted_at_s >= ADJUST_EVERY_S:
            self._adjusted_at_s = now
            self._adjust(most_tokens, objective_s, measured.tpot_p95_s(now), measured.recent_tpot_p95_s(now))
        return int(min(most_tokens, self._tokens))

    def _adjust(self, most_tokens: int, objective_s: float, p95_s: float, recent_s: float) -> None:
        current = min(self._tokens, most_tokens)
        if p95_s > objective_s:
            if recent_s > objective_s:
                self._too_much = current
                self._tokens = max(current * SHRINK, MIN_CHUNK_TOKENS)
        elif recent_s <= objective_s * MARGIN and self._tokens < most_tokens:
            growth = GROW if current * GROW < self._too_much else GROW_BEYOND
            self._tokens = max(current * growth, MIN_CHUNK_TOKENS)
