"""Shares with what can be told from them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.bench.proportion import Proportion


def test_ten_of_forty_seven():
    one = Proportion(10, 47)
    assert one.share == pytest.approx(0.2128, abs=1e-4)
    assert one.interval == pytest.approx((0.1199, 0.3490), abs=1e-3)


def test_of_nothing_nothing_is_told():
    none = Proportion(0, 0)
    assert (none.share, none.interval) == (None, None)


@pytest.mark.parametrize("part", [0, 20])
def test_neither_end_is_certain(part: int):
    low, high = Proportion(part, 20).interval or (0.0, 0.0)
    assert 0 <= low < high <= 1
    assert high - low == pytest.approx(0.161, abs=1e-3)


@given(st.integers(1, 500), st.data())
def test_the_share_is_within_and_more_requests_tell_more(whole: int, data: st.DataObject):
    part = data.draw(st.integers(0, whole))
    few, many = Proportion(part, whole), Proportion(10 * part, 10 * whole)
    low, high = few.interval or (1.0, 0.0)
    assert low - 1e-9 <= (few.share or 0.0) <= high + 1e-9
    closer = many.interval or (0.0, 1.0)
    assert closer[1] - closer[0] < high - low


def test_the_true_share_is_within_nineteen_times_in_twenty():
    numbers = random.Random(1)
    within = 0
    for _ in range(2000):
        low, high = Proportion(sum(numbers.random() < 0.1 for _ in range(60)), 60).interval or (1.0, 0.0)
        within += low <= 0.1 <= high
    assert 0.93 <= within / 2000 <= 0.98


def test_more_than_all_is_a_mistake():
    with pytest.raises(AssertionError):
        Proportion(3, 2)
