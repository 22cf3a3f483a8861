"""What `status.slo` says: the measured P95 of the time to the first token, when a change is news. Pure.

The time per output token is written with it and is no news by itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from firsttoken_api import duration, state
from firsttoken_api.status import SloStatus
from firsttoken_operator import ttft
from firsttoken_operator.observed import Observed

SLO_EVERY_S = 60.0
SLO_CHANGE = 0.10

_LONGEST_S = 1e9
"""An image of somebody else's may say anything; more than this is no measurement."""
_MILLISECONDS = re.compile(r">?([0-9]{1,15})ms")


@dataclass(frozen=True)
class Slo:
    """`status.slo`, and whether this is news (then the caller remembers when it was written)."""

    value: SloStatus | None
    is_news: bool
    was_looked_at: bool = False
    """The measurement was compared; without new requests there is no need to again."""
    again_after_s: float | None = None
    """A change is held back until then."""


def measured(observed: Observed, now: float) -> Slo:
    """The P95 of the window, at rest the last one that was seen.

    Without new requests the percentile only moves because old ones leave the window: that is no news. A first
    value, one on the other side of the objective, and at most once a minute a change past a tenth are.
    """
    previous = observed.previous.slo
    merged = ttft.merge(_windows(observed))
    value_s = ttft.quantile_s(merged, 0.95) if merged else None
    if merged is None or value_s is None:
        return Slo(previous, False)
    before_s = seconds(previous)
    if before_s is not None and observed.traffic_at_slo in (None, observed.traffic()):
        return Slo(previous, False, was_looked_at=True)
    objective_s = duration.to_seconds(observed.service.spec.slo.ttft_p95)
    above = ttft.fraction_above(merged, objective_s) or 0.0
    is_past_last = value_s >= merged.edges_s[-1]
    text = f"{'>' if is_past_last else ''}{max(1, round(value_s * 1000))}ms"
    current = SloStatus(ttft_p95=text, tpot_p95=_pace(observed), breach_fraction=f"{above:.2f}")
    if before_s is None or (before_s > objective_s) != (value_s > objective_s):
        return Slo(current, True, was_looked_at=True)
    if abs(value_s - before_s) <= SLO_CHANGE * before_s:
        return Slo(previous, False, was_looked_at=True)
    is_due = observed.slo_written_s is None or now - observed.slo_written_s >= SLO_EVERY_S
    if is_due or observed.slo_written_s is None:
        return Slo(current, True, was_looked_at=True)
    return Slo(previous, False, again_after_s=observed.slo_written_s + SLO_EVERY_S - now)


def seconds(slo: SloStatus | None) -> float | None:
    """None also for what somebody else wrote there."""
    found = _MILLISECONDS.fullmatch((slo.ttft_p95 or "") if slo else "")
    return int(found[1]) / 1000 if found else None


def _pace(observed: Observed) -> str | None:
    """The slowest replica's time per output token; None where nothing was generated lately."""
    engines = (pod.state.engine for pod in observed.live_pods() if pod.state)
    slowest_s = max((engine.tpot_p95_s for engine in engines if engine), default=0.0)
    return f"{max(1, round(slowest_s * 1000))}ms" if 0 < slowest_s < _LONGEST_S else None


def _windows(observed: Observed) -> Iterator[state.TtftWindow]:
    for pod in observed.live_pods():
        if pod.state and pod.state.ttft:
            yield pod.state.ttft
