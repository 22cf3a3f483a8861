"""So many of so many, and what can be told from it. Pure.

A share of few requests says little: 10 of 47 may come from a true share of 12 % as well as of 35 %. The
interval is Wilson's, which stays within 0 and 1 and holds for few requests and for shares near either end.
It takes requests as independent. Those of one run are not, where a burst makes several late at once: take it
as the least that is uncertain.
"""

import math
from dataclasses import dataclass

DEVIATIONS = 1.96
"""Of 95 %."""


@dataclass(frozen=True)
class Proportion:
    """`part` of `whole`."""

    part: int
    whole: int

    def __post_init__(self) -> None:
        assert 0 <= self.part <= self.whole, (self.part, self.whole)

    @property
    def share(self) -> float | None:
        """None of none."""
        return self.part / self.whole if self.whole else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """In which the true share is, with 95 %."""
        if not self.whole:
            return None
        share, squared = self.part / self.whole, DEVIATIONS**2 / self.whole
        middle = (share + squared / 2) / (1 + squared)
        half = math.sqrt(share * (1 - share) * squared + squared**2 / 4) / (1 + squared)
        return max(middle - half, 0.0), min(middle + half, 1.0)
