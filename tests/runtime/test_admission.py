"""Who is refused because the first token would come too late, and when to come again."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime import core
from firsttoken_runtime.server import admission, metrics


def stats(rate: float = 1000.0) -> core.Stats:
    return msgspec.structs.replace(metrics.NOTHING_SEEN, prefill_tokens_per_s=rate)


def test_the_wait_is_the_work_ahead_over_the_measured_rate() -> None:
    assert admission.expected_wait_s(stats(), prompt_tokens=500, ahead=1500) == 2.0


def test_nothing_is_refused_before_something_was_measured() -> None:
    assert admission.refusal(stats(0.0), prompt_tokens=10, ahead=10**9, limit_s=1.0) is None
    assert admission.refusal(None, prompt_tokens=10, ahead=10**9, limit_s=1.0) is None


def test_an_idle_engine_takes_a_prompt_of_any_length() -> None:
    assert admission.refusal(stats(), prompt_tokens=10**6, ahead=0, limit_s=1.0) is None


def test_a_refusal_says_how_long_and_until_when() -> None:
    refusal = admission.refusal(stats(), prompt_tokens=1000, ahead=41_500, limit_s=30.0)
    assert refusal is not None
    assert "about 42 s" in str(refusal)
    assert "30 s" in str(refusal)
    assert refusal.retry_after_s == 13


@pytest.mark.parametrize(("objective_s", "limit_s"), [(0.5, 30.0), (8.0, 80.0), (3.0, 30.0)])
def test_the_limit_follows_the_objective_but_is_never_hasty(objective_s: float, limit_s: float) -> None:
    assert admission.wait_limit_s(objective_s) == limit_s


@given(st.integers(0, 10**7), st.integers(1, 10**5), st.floats(1.0, 1e5), st.floats(1.0, 1e3))
def test_whoever_waits_as_told_would_be_taken(
    ahead: int, prompt_tokens: int, rate: float, limit_s: float
) -> None:
    refusal = admission.refusal(stats(rate), prompt_tokens=prompt_tokens, ahead=ahead, limit_s=limit_s)
    if refusal is None or refusal.retry_after_s == admission.LONGEST_RETRY_AFTER_S:
        return
    left = max(0, ahead - math.ceil(refusal.retry_after_s * rate))  # the one that is half done will be soon
    assert admission.refusal(stats(rate), prompt_tokens=prompt_tokens, ahead=left, limit_s=limit_s) is None
