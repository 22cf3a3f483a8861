"""The stages of a TTFT add up to it, whatever the points are."""

import math

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime import core
from firsttoken_runtime.server import stages
from firsttoken_runtime.server.stages import Stage


def times(
    queued: float, scheduled: float, prefilled: float, sampled: float, loaded: float = 0.0
) -> core.FirstTokenTimes:
    return core.FirstTokenTimes(
        queued_s=queued, scheduled_s=scheduled, loaded_s=loaded, prefilled_s=prefilled, sampled_s=sampled
    )


def test_each_stage_is_the_time_between_two_points() -> None:
    found = stages.split(10.0, times(10.25, 11.0, 13.0, 13.5), 14.5)
    assert found == {
        Stage.TOKENIZE: 0.25,
        Stage.QUEUE: 0.75,
        Stage.TIER_LOAD: 0.0,
        Stage.PREFILL: 2.0,
        Stage.FIRST_SAMPLE: 0.5,
        Stage.WRITE: 1.0,
    }
    found = stages.split(10.0, times(10.25, 11.0, 13.0, 13.5, loaded=11.5), 14.5)
    assert (found[Stage.TIER_LOAD], found[Stage.PREFILL]) == (0.5, 1.5)


def test_without_a_token_all_time_is_on_the_way_out() -> None:
    found = stages.split(10.0, None, 12.0)
    assert found[Stage.WRITE] == 2.0
    assert sum(found.values()) == 2.0


points = st.floats(min_value=0, max_value=1e6)


@given(points, points, points, points, points, points, points)
def test_stages_are_never_negative_and_add_up(
    arrival: float, a: float, b: float, c: float, d: float, e: float, length: float
) -> None:
    written = arrival + length
    found = stages.split(arrival, times(a, b, c, d, e), written)
    assert all(seconds >= 0 for seconds in found.values())
    assert math.isclose(math.fsum(found.values()), written - arrival, abs_tol=1e-9, rel_tol=1e-12)


def test_the_document_for_clients_is_in_milliseconds() -> None:
    timing = stages.Timing(0.5, {Stage.QUEUE: 0.125, Stage.PREFILL: 0.375})
    assert timing.document() == {"ttft_ms": 500.0, "stages_ms": {"queue": 125.0, "prefill": 375.0}}
