"""Prices are found again from noisy steps, none is negative, and what is not seen stays at the prior."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api import step_fit
from firsttoken_api.step_time import StepTime

CPU = StepTime(fixed_s=0.040, per_prefill_token_s=0.00045, per_decode_s=0.0025, per_context_token_s=2e-7)


def feed(fit: step_fit.StepFit, true: StepTime, count: int, noise: float = 0.1, seed: int = 3) -> None:
    numbers = random.Random(seed)
    for _ in range(count):
        prefill, decoding = numbers.randint(0, 449), numbers.randint(0, 63)
        context = decoding * numbers.randint(50, 900)
        seconds = true.seconds(prefill, decoding, context) * numbers.lognormvariate(0, noise)
        fit.note(seconds, prefill_tokens=prefill, decoding=decoding, context_tokens=context)


def worst_error(found: StepTime, true: StepTime) -> float:
    """Of the time of any of these steps, relative."""
    steps = [(0, 1, 100), (512, 0, 0), (448, 64, 20_000), (130, 31, 7_000), (17, 3, 300)]
    return max(abs(found.seconds(*step) / true.seconds(*step) - 1) for step in steps)


def test_prices_are_found_whatever_was_assumed_before() -> None:
    for prior in (None, StepTime(0.2, 0.002, 0.0, 0.0), StepTime(0.001, 0.00001, 0.01, 0.0)):
        fit = step_fit.StepFit(prior)
        feed(fit, CPU, 400)
        assert fit.step_time is not None
        assert worst_error(fit.step_time, CPU) < 0.15, prior


def test_a_change_of_speed_is_followed_within_its_memory() -> None:
    fit = step_fit.StepFit(CPU)
    feed(fit, CPU, 300)
    slow = StepTime(0.12, 0.00135, 0.0075, 6e-7)
    feed(fit, slow, 600)
    assert fit.step_time is not None
    assert worst_error(fit.step_time, slow) < 0.25


def test_what_no_step_shows_stays_as_it_was_measured() -> None:
    fit = step_fit.StepFit(CPU)
    for tokens in range(100, 400):
        seconds = 1.5 * CPU.seconds(tokens, 0, 0)
        fit.note(seconds, prefill_tokens=tokens, decoding=0, context_tokens=0)
    assert fit.step_time is not None
    assert fit.step_time.per_decode_s == pytest.approx(CPU.per_decode_s, rel=0.01)
    assert fit.step_time.seconds(300, 0, 0) == pytest.approx(1.5 * CPU.seconds(300, 0, 0), rel=0.02)


def test_one_step_that_stood_still_changes_little() -> None:
    fit = step_fit.StepFit(CPU)
    feed(fit, CPU, 200, noise=0.01)
    for _ in range(8):
        feed(fit, CPU, 1, noise=0.0)
    before = fit.step_time
    fit.note(60.0, prefill_tokens=100, decoding=10, context_tokens=1000)
    feed(fit, CPU, 7, noise=0.0)
    assert before is not None
    assert fit.step_time is not None
    assert worst_error(fit.step_time, before) < 0.2


def test_steps_that_come_as_sums_are_taken_apart() -> None:
    numbers = random.Random(5)
    fit = step_fit.StepFit()
    for _ in range(300):
        steps = numbers.randint(1, 9)
        prefill, decodes = numbers.randint(0, 900), steps * numbers.randint(0, 40)
        seconds = steps * CPU.fixed_s + CPU.seconds(prefill, decodes, 0) - CPU.fixed_s
        fit.note(seconds, steps=steps, prefill_tokens=prefill, decoding=decodes, context_tokens=0)
    assert fit.step_time is not None
    assert fit.step_time.fixed_s == pytest.approx(CPU.fixed_s, rel=0.1)
    assert fit.step_time.per_decode_s == pytest.approx(CPU.per_decode_s, rel=0.1)


def test_nothing_is_said_of_an_engine_that_nobody_has_seen() -> None:
    fit = step_fit.StepFit()
    assert fit.step_time is None
    feed(fit, CPU, step_fit.LEAST_ROWS)
    assert fit.step_time is not None


def test_steps_with_room_left_count_less() -> None:
    fit = step_fit.StepFit(CPU)
    for _ in range(100):
        fit.note(CPU.seconds(500, 10, 0), prefill_tokens=500, decoding=10, context_tokens=0)
        slow_s = 2 * CPU.seconds(500, 10, 0)
        fit.note(slow_s, prefill_tokens=500, decoding=10, context_tokens=0, is_loaded=False)
    assert fit.step_time is not None
    assert fit.step_time.seconds(500, 10, 0) < 1.2 * CPU.seconds(500, 10, 0)


steps = st.tuples(
    st.floats(0, 100), st.integers(0, 10_000), st.integers(0, 512), st.integers(0, 10**7), st.booleans()
)


@given(st.lists(steps, max_size=60), st.booleans())
def test_no_price_is_ever_negative_or_unbounded(
    rows: list[tuple[float, int, int, int, bool]], has_prior: bool
) -> None:
    fit = step_fit.StepFit(CPU if has_prior else None)
    for seconds, prefill, decoding, context, is_loaded in rows:
        fit.note(
            seconds,
            prefill_tokens=prefill,
            decoding=decoding,
            context_tokens=context,
            is_loaded=is_loaded,
        )
        found = fit.step_time
        if found is not None:
            assert 0 <= found.seconds(512, 64, 10_000) < 1e6
