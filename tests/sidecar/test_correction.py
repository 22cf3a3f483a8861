"""A margin is learned from errors near the limit, follows a change, and is neither endless nor timid."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import correction

LIMIT_S = 1.0


def likely(of: correction.Correction, expected_s: float, now: float, limit_s: float = LIMIT_S) -> float:
    return correction.likely_s(expected_s, of.spread(limit_s, now), limit_s)


def learned(ratio: float, noise: float, *, near_s: float = 0.7, count: int = 300) -> correction.Correction:
    numbers = random.Random(4)
    one = correction.Correction()
    for number in range(count):
        expected_s = numbers.uniform(0.8, 1.0) * near_s
        one.note(expected_s, expected_s * ratio * numbers.lognormvariate(0, noise), number / 10)
        one.spread(LIMIT_S, number / 10)
    return one


def test_before_anything_is_seen_a_fifth_is_added_at_the_limit() -> None:
    assert likely(correction.Correction(), 1.0, 0.0) == pytest.approx(1.2, abs=0.02)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.4])
def test_about_one_in_twenty_comes_later_than_likely(ratio: float) -> None:
    one = learned(ratio, 0.15)
    numbers = random.Random(5)
    late = 0
    for _ in range(2000):
        expected_s = numbers.uniform(0.8, 1.0) * 0.7
        late += expected_s * ratio * numbers.lognormvariate(0, 0.15) > likely(one, expected_s, 30.0)
    assert 0.02 < late / 2000 < 0.1


def test_exact_estimates_need_almost_no_margin() -> None:
    assert likely(learned(1.0, 0.0), 0.7, 30.0) < 0.75


def test_errors_far_from_the_limit_say_little() -> None:
    one = learned(1.0, 0.01)
    before = likely(one, 0.8, 30.0)
    for number in range(200):
        one.note(0.02, 0.2, 30 + number / 100)
    assert likely(one, 0.8, 32.0) < 1.1 * before


def test_what_was_learned_under_a_far_limit_is_not_used_under_a_near_one() -> None:
    one = correction.Correction()
    for number in range(300):
        one.note(20.0, 60.0, number / 10)
        one.spread(3600.0, number / 10)
    assert likely(one, 0.8, 31.0) < 1.1


def test_old_errors_make_way_for_new_ones() -> None:
    one = learned(3.0, 0.1)
    assert likely(one, 0.7, 30.0) > 1.5
    for number in range(400):
        one.note(0.7, 0.7, 31.0 + number / 10)
        one.spread(LIMIT_S, 31.0 + number / 10)
    assert likely(one, 0.7, 72.0) < 0.9


def test_who_still_waits_counts_before_it_ends() -> None:
    one = learned(1.0, 0.01)
    before = one.spread(LIMIT_S, 31.0)
    assert one.spread(LIMIT_S, 32.0, [(0.8, 2.4)] * 60) > before + 0.3


def test_breaches_widen_the_margin_and_hits_near_the_limit_narrow_it() -> None:
    one = learned(1.0, 0.01)
    before = one.spread(LIMIT_S, 31.0)
    for _ in range(10):
        one.decided(31.0, is_breach=True, is_near=False)
    widened = one.spread(LIMIT_S, 31.0)
    assert widened > before + 0.3
    for _ in range(100):
        one.decided(31.0, is_breach=False, is_near=False)
    assert one.spread(LIMIT_S, 31.0) == widened
    for _ in range(1000):
        one.decided(31.0, is_breach=False, is_near=True)
    assert one.spread(LIMIT_S, 31.0) == pytest.approx(before + correction.LEAST_BIAS)


def test_what_breaches_taught_wears_off_while_nobody_is_let_in() -> None:
    one = learned(1.0, 0.01)
    before = one.spread(LIMIT_S, 31.0)
    for _ in range(10):
        one.decided(31.0, is_breach=True, is_near=True)
    widened = one.spread(LIMIT_S, 32.0)
    assert one.spread(LIMIT_S, 32.5) == pytest.approx(widened, abs=0.01)
    assert one.spread(LIMIT_S, 130.0) < before + 0.1


def test_without_a_limit_nothing_is_added() -> None:
    one = learned(3.0, 0.1)
    endless = float("inf")
    assert correction.likely_s(5.0, one.spread(endless, 31.0), endless) == 5.0


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1000)), max_size=50),
    st.floats(0, 50),
    st.floats(0.01, 60),
)
def test_more_expected_is_never_less_likely(
    errors: list[tuple[float, float]], expected_s: float, limit_s: float
) -> None:
    one = correction.Correction()
    for expected, actual in errors:
        one.note(expected, actual, 1.0)
    spread = one.spread(limit_s, 2.0)
    assert 0 <= correction.likely_s(expected_s, spread, limit_s) < float("inf")
    if spread >= 0:
        assert correction.likely_s(expected_s + 1, spread, limit_s) >= correction.likely_s(
            expected_s, spread, limit_s
        )
