"""When a first token comes: each part of the time shows, and more work is never sooner."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api import ttft_estimate
from firsttoken_api.overtaking import Arriving
from firsttoken_api.state import LoadState
from firsttoken_api.step_time import StepTime

STEP = StepTime(fixed_s=0.1, per_prefill_token_s=0.001, per_decode_s=0.01)


def load(**changes: Any) -> LoadState:
    known = {"step_time": STEP, "chunk_tokens": 100, "max_prefill_batch": 4, "max_num_seqs": 8}
    return LoadState(**known | changes)


def seconds(engine: LoadState, uncached: int = 50, **kwargs: Any) -> float:
    kwargs = {"ahead_tokens": 0, "ahead_requests": 0} | kwargs
    return ttft_estimate.seconds(engine, uncached_tokens=uncached, **kwargs)


def test_an_idle_engine_takes_one_step_for_a_chunk() -> None:
    assert seconds(load()) == pytest.approx(0.15)
    assert seconds(load(), 250) == pytest.approx(3 * 0.1 + 0.25)


def test_answers_that_run_make_steps_longer_and_half_a_step_is_waited_for() -> None:
    busy = load(decoding=5, running=5)
    assert seconds(busy) == pytest.approx(0.5 * 0.15 + 0.15 + 0.05)
    assert seconds(busy, rest_s=0.02) == pytest.approx(0.02 + 0.15 + 0.05)


def test_work_ahead_takes_steps_by_tokens_and_by_prompts() -> None:
    by_tokens = seconds(load(), ahead_tokens=200, ahead_requests=2, rest_s=0.0)
    assert by_tokens == pytest.approx(3 * (0.1 + 0.01) + 0.25)
    by_prompts = seconds(load(), ahead_tokens=8, ahead_requests=8, rest_s=0.0)
    assert by_prompts == pytest.approx(3 * (0.1 + 0.04) + 0.058)
    unknown = load(max_prefill_batch=0)
    assert seconds(unknown, ahead_tokens=8, ahead_requests=8, rest_s=0.0) == pytest.approx(0.14 + 0.058)


def test_others_in_its_own_step_count_as_far_as_they_fit() -> None:
    assert seconds(load(), joining_tokens=30) == pytest.approx(0.18)
    assert seconds(load(), joining_tokens=3000) == pytest.approx(0.20)


def test_a_slot_is_waited_for_beside_the_line_not_after_it() -> None:
    assert seconds(load(), slot_wait_s=2.0) == pytest.approx(2.15)
    assert seconds(load(), ahead_tokens=400, ahead_requests=1, slot_wait_s=0.1, rest_s=0.0) > 0.8


def test_more_urgent_arrivals_stretch_the_wait_and_not_the_own_step() -> None:
    waiting: dict[str, Any] = {"ahead_tokens": 100, "ahead_requests": 1, "rest_s": 0.0}
    plain = seconds(load(), **waiting)
    own_s = seconds(load(decoding=0), rest_s=0.0)
    assert seconds(load(), arriving=Arriving(0.5), **waiting) > plain + 0.9 * (plain - own_s) - 0.05
    assert seconds(load(), arriving=Arriving(3.0), **waiting) < 100, "never endless"


def test_an_engine_that_only_knows_its_rate_and_one_that_knows_nothing() -> None:
    rate = LoadState(prefill_tokens_per_s=100.0)
    assert seconds(rate, ahead_tokens=200, ahead_requests=1) == pytest.approx(2.5)
    assert seconds(LoadState(), ahead_tokens=200, ahead_requests=1) == 0.0


def test_what_is_less_urgent_is_not_ahead() -> None:
    one = load(ahead_tokens_by_priority={"0": 500, "10": 100, "-5": 900}, waiting=3, running=3)
    urgent = ttft_estimate.estimate(one, 20, 50)
    middle = ttft_estimate.estimate(one, 5, 50)
    least = ttft_estimate.estimate(one, -5, 50)
    assert urgent < middle < least
    rushed = one.model_copy(update={"arriving_share_by_priority": {"10": 0.5}})
    assert ttft_estimate.estimate(rushed, 5, 50) > middle
    assert ttft_estimate.estimate(rushed, 10, 50) == ttft_estimate.estimate(one, 10, 50)


@given(st.integers(0, 5000), st.integers(0, 40), st.integers(1, 3000), st.integers(0, 64), st.floats(0, 5))
def test_more_of_anything_is_never_sooner(
    tokens: int, requests: int, uncached: int, decoding: int, slot_wait_s: float
) -> None:
    def at(**more: Any) -> float:
        facts: dict[str, Any] = {
            "ahead_tokens": tokens,
            "ahead_requests": requests,
            "uncached": uncached,
            "slot_wait_s": slot_wait_s,
            "decoding": decoding,
        }
        for name, amount in more.items():
            facts[name] += amount
        now = int(facts.pop("decoding"))
        return seconds(load(decoding=now, running=now), **facts)

    for more in (
        {"ahead_tokens": 7},
        {"ahead_requests": 1},
        {"uncached": 3},
        {"slot_wait_s": 0.1},
        {"decoding": 1},
    ):
        assert at(**more) >= at() - 1e-9, more
