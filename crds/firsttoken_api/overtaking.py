"""How much later a request starts because more urgent ones come meanwhile and go first. Pure.

Work comes by chance, and in pieces: while a request waits t seconds, `share * t` seconds of it are expected,
with a variance of `variance_s * t`. A request whose line takes `line` seconds starts at the first t in which
the engine has done the line and all that came before it:

    t = line + share * t + deviations * sqrt(variance_s * t)
"""

import math
from dataclasses import dataclass

MOST_SHARE = 0.98
"""Beyond it nothing is left for the others."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """Work that is asked for and goes first."""

    share: float = 0.0
    """Of the engine's time."""
    variance_s: float = 0.0
    """Of the work that comes in a second: the pieces a second, times the mean square of one."""


NOBODY = Arriving()


def start_s(line_s: float, arriving: Arriving, deviations: float = 0.0) -> float:
    """When a line of that length is done; with 0 deviations as expected, with one as five of six at least."""
    left = 1 - min(arriving.share, MOST_SHARE)
    chance_s = deviations * deviations * arriving.variance_s
    half_s = left * line_s + chance_s / 2
    return (half_s + math.sqrt(max(half_s * half_s - (left * line_s) ** 2, 0.0))) / (left * left)
