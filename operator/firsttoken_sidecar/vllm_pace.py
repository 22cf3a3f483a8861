"""How long a step of vLLM takes, learned from the difference of two looks at its metrics. Pure.

vLLM does not say how long its steps took. But it counts steps and tokens, and while it is busy all of the
time passes in steps, so each interval of a busy engine is one equation:

    seconds = steps x fixed + prompt tokens x price + generated tokens x price

The three unknowns are fitted by least squares without negative values. Older intervals count less and less.
What sequences read of their context is part of the price of a generated token: its sum is not known.
"""

import itertools
from collections.abc import Iterator

from firsttoken_api.step_time import StepTime

DECAY = 0.98
"""Weight of an interval against the next one; at two looks a second it halves in 17 s of load."""
LEAST_INTERVALS = 6
RIDGE = 1e-6
"""Relative; keeps unknowns apart that no interval told apart yet."""
UNKNOWNS = 3

Row = tuple[float, float, float]


class Fit:
    """The equations so far, as sums."""

    def __init__(self) -> None:
        self._products = [[0.0] * UNKNOWNS for _ in range(UNKNOWNS)]
        self._results = [0.0] * UNKNOWNS
        self._intervals = 0

    def add(self, steps: float, prompt_tokens: float, generated_tokens: float, seconds: float) -> None:
        """One interval in which the engine was busy throughout."""
        row = (steps, prompt_tokens, generated_tokens)
        # Of equal weight per second, whatever the length: a row is an equation about its own interval.
        scale = 1.0 / seconds
        for i in range(UNKNOWNS):
            for j in range(UNKNOWNS):
                self._products[i][j] = DECAY * self._products[i][j] + scale * row[i] * row[j]
            self._results[i] = DECAY * self._results[i] + scale * row[i] * seconds
        self._intervals += 1

    def step_time(self) -> StepTime | None:
        """None while too little was seen. Of all ways to leave unknowns at zero the one that fits best."""
        if self._intervals < LEAST_INTERVALS:
            return None
        best, best_error = (0.0, 0.0, 0.0), 0.0
        for found in self._solutions():
            error = self._error(found)
            if min(found) >= 0 and error < best_error:
                best, best_error = found, error
        if not any(best):
            return None
        fixed_s, per_prompt_token_s, per_token_s = best
        return StepTime(fixed_s, per_prompt_token_s, per_token_s, 0.0)

    def _error(self, found: Row) -> float:
        """Sum of squares, less its part that is the same for every solution."""
        quadratic = sum(
            found[i] * found[j] * self._products[i][j] for i in range(UNKNOWNS) for j in range(UNKNOWNS)
        )
        return quadratic - 2 * sum(f * r for f, r in zip(found, self._results, strict=True))

    def _solutions(self) -> Iterator[Row]:
        for count in range(1, UNKNOWNS + 1):
            for kept in itertools.combinations(range(UNKNOWNS), count):
                solved = _solved(
                    [
                        [self._products[i][j] * (1 + RIDGE * (i == j)) for j in kept] + [self._results[i]]
                        for i in kept
                    ]
                )
                if solved is not None:
                    whole = [0.0] * UNKNOWNS
                    for place, value in zip(kept, solved, strict=True):
                        whole[place] = value
                    yield whole[0], whole[1], whole[2]


def _solved(rows: list[list[float]]) -> list[float] | None:
    """Gauss and Jordan with pivots; each row ends with its result. None: no single solution."""
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) < 1e-12:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        top = rows[column]
        rows[column] = top = [value / top[column] for value in top]
        for other in range(size):
            if other != column and rows[other][column]:
                factor = rows[other][column]
                rows[other] = [a - factor * b for a, b in zip(rows[other], top, strict=True)]
    return [row[-1] for row in rows]
