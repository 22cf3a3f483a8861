"""Whether one that was let in would be late for another that goes before it. Pure."""

from firsttoken_api import overtaking
from firsttoken_sidecar import backlog, correction

DEVIATIONS = 0.7
"""Of the work of more urgent requests that may come meanwhile: three of four are overtaken by less."""


def is_broken(
    entry: backlog.Entry, delay_s: float, spread: float, arriving: overtaking.Arriving, now: float
) -> bool:
    """By a delay. spread: what the reckoned time errs by, see `correction`; arriving: what may come besides.

    False as well where there is nothing to break: nothing was promised, as to a prompt that is too long for
    its limit by itself, or it is late anyway.
    """
    latest_s = entry.arrival_s + entry.limit_s - entry.admitted_s
    reckoned_s = entry.expected_s + entry.pushed_s
    if max(entry.likely_s, reckoned_s) > latest_s:
        return False
    waited_s = now - entry.admitted_s
    left_s = max(reckoned_s - waited_s, 0.0) + delay_s
    reckoned_s = waited_s + overtaking.start_s(left_s, arriving, DEVIATIONS)
    return correction.likely_s(reckoned_s, spread, entry.limit_s) > latest_s
