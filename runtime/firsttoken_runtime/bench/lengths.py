"""How long prompts and answers are. Pure; all draws come from the caller's seeded generator."""

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Uniform:
    """Every length from `low` to `high` tokens, both included, is equally likely."""

    low: int
    high: int

    def draw(self, generator: random.Random) -> int:
        return generator.randint(self.low, self.high)


@dataclass(frozen=True)
class LogNormal:
    """A long tail: most lengths near `median`, few many times as long, cut off at `low` and `high`."""

    median: float
    sigma: float
    low: int
    high: int

    def draw(self, generator: random.Random) -> int:
        length = generator.lognormvariate(math.log(self.median), self.sigma)
        return max(self.low, min(self.high, round(length)))


Lengths = Uniform | LogNormal


@dataclass(frozen=True)
class Mixture:
    """`rare` for exactly the share `rare_share` of all draws, `usual` for the others.

    Exact, not by chance: a percentile of few requests must not depend on how many long ones came up.
    """

    usual: Lengths
    rare: Lengths
    rare_share: float

    def draw_many(self, generator: random.Random, count: int) -> list[int]:
        rare_count = round(count * self.rare_share)
        lengths = [self.rare.draw(generator) for _ in range(rare_count)]
        lengths += [self.usual.draw(generator) for _ in range(count - rare_count)]
        generator.shuffle(lengths)
        return lengths


def draw_many(lengths: Lengths | Mixture, generator: random.Random, count: int) -> list[int]:
    if isinstance(lengths, Mixture):
        return lengths.draw_many(generator, count)
    return [lengths.draw(generator) for _ in range(count)]
