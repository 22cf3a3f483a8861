"""Learns what an engine's steps cost, from its steps. Pure.

A decayed regression with no negative price:  seconds = steps * fixed + prompt tokens, decodes and context,
each at its price. Each row counts by its relative error. What the rows cannot tell apart (an engine that
never decodes says nothing about decodes) stays near the prior, which counts as much as a part of one row.
"""

from firsttoken_api.step_time import StepTime

KEEP = 0.995
"""Weight of the past after one more row: the memory is about 200 steps."""
UNLOADED_WEIGHT = 0.1
"""Of a step that had room for more: it says less about a full one."""
LOADED_SHARE = 0.8
"""A step that used so much of its prefill budget was loaded."""
PRIOR_WEIGHT = 0.3
LEAST_ROWS = 8
"""Without a prior nothing is said before."""
SOLVE_EVERY = 8
LARGEST_SURPRISE = 4.0
"""A step that took so many times what was expected counts no further: something else ran."""
SHORTEST_S = 1e-4
"""Shorter steps than any engine's count as of this length."""
_TYPICAL = (1.0, 512.0, 64.0, 32_768.0)
"""Steps, prompt tokens, decodes and context of a full step: the unit of each price while solving."""
_SWEEPS = 60

Row = tuple[float, float, float, float]


class StepFit:
    """Prices of one engine's steps."""

    def __init__(self, prior: StepTime | None = None) -> None:
        """prior: as measured at the start; None: nothing was."""
        self._prior = prior
        self._prices = [0.0] * 4 if prior is None else _scaled(prior)
        prior_s = sum(self._prices)
        weight = PRIOR_WEIGHT / prior_s**2 if prior_s > 0 else 0.0
        self._kept = [weight if row == column else 0.0 for row in range(4) for column in range(4)]
        self._kept_right = [weight * price for price in self._prices]
        self._left = [0.0] * 16
        self._right = [0.0] * 4
        self._num_rows = 0
        self._since_solved = 0
        self._solved = prior

    def note(
        self,
        seconds: float,
        *,
        prefill_tokens: float,
        decoding: float,
        context_tokens: float,
        steps: float = 1.0,
        is_loaded: bool = True,
    ) -> None:
        """So many steps took so long, together."""
        if seconds <= 0 or steps <= 0:
            return
        row: Row = (
            steps / _TYPICAL[0],
            prefill_tokens / _TYPICAL[1],
            decoding / _TYPICAL[2],
            context_tokens / _TYPICAL[3],
        )
        expected_s = sum(value * price for value, price in zip(row, self._prices, strict=True))
        if expected_s > 0:
            seconds = min(max(seconds, expected_s / LARGEST_SURPRISE), expected_s * LARGEST_SURPRISE)
        weight = (1.0 if is_loaded else UNLOADED_WEIGHT) / max(expected_s or seconds, SHORTEST_S) ** 2
        left, right = self._left, self._right
        for i in range(4):
            weighted = weight * row[i]
            right[i] = right[i] * KEEP + weighted * seconds
            for j in range(4):
                left[4 * i + j] = left[4 * i + j] * KEEP + weighted * row[j]
        self._num_rows += 1
        self._since_solved += 1
        if self._since_solved >= SOLVE_EVERY:
            self._solve()

    @property
    def step_time(self) -> StepTime | None:
        """None: not known yet."""
        return self._solved

    def _solve(self) -> None:
        """Coordinate descent from where it was; each price at its best given the others, and not below 0."""
        self._since_solved = 0
        left = [mine + kept for mine, kept in zip(self._left, self._kept, strict=True)]
        right = [mine + kept for mine, kept in zip(self._right, self._kept_right, strict=True)]
        prices = self._prices
        for _ in range(_SWEEPS):
            for i in range(4):
                own = left[4 * i + i]
                if own <= 0:
                    continue
                others = sum(left[4 * i + j] * prices[j] for j in range(4) if j != i)
                prices[i] = max(0.0, (right[i] - others) / own)
        if self._prior is not None or self._num_rows >= LEAST_ROWS:
            self._solved = StepTime(
                *(price / typical for price, typical in zip(prices, _TYPICAL, strict=True))
            )


def _scaled(step: StepTime) -> list[float]:
    prices = (step.fixed_s, step.per_prefill_token_s, step.per_decode_s, step.per_context_token_s)
    return [price * typical for price, typical in zip(prices, _TYPICAL, strict=True)]
