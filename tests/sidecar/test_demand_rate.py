"""Work a second, by priority, of the last seconds."""

import pytest

from firsttoken_sidecar.demand_rate import Demand, DemandRate


def test_a_steady_load_is_its_rate() -> None:
    one = DemandRate(memory_s=5.0)
    for number in range(1000):
        one.add(10, 0.05, number / 10)
        one.add(0, 0.02, number / 10)
    assert one.share(10, 99.9) == pytest.approx(0.5, rel=0.05)
    assert one.above(0, 1.0, 99.9).share == pytest.approx(0.5, rel=0.05)
    assert one.above(-1, 1.0, 99.9).share == pytest.approx(0.7, rel=0.05)
    assert one.above(10, 1.0, 99.9).share == 0.0
    assert one.above(0, 0.5, 99.9).share == pytest.approx(1.0, rel=0.05), "half as fast, twice the share"
    assert one.above(0, 1.0, 99.9).variance_s == pytest.approx(10 * 0.05**2, rel=0.05)
    assert one.above(0, 0.5, 99.9).variance_s == pytest.approx(40 * 0.05**2, rel=0.05)
    assert set(one.priorities()) == {0, 10}


def test_it_is_forgotten_and_time_never_runs_backwards() -> None:
    one = DemandRate(memory_s=1.0)
    one.add(0, 1.0, 10.0)
    assert one.share(0, 9.0) == one.share(0, 10.0) == 1.0
    assert one.share(0, 20.0) < 0.001


def test_a_surge_is_seen_within_a_second_or_two_and_a_lull_is_not_believed() -> None:
    one, slow = Demand(), DemandRate()
    for number in range(20):
        for each in (one, slow):
            each.add(10, 0.1, 100 + number / 10)
    assert one.above(0, 1.0, 102.0).share > 1.6 * slow.above(0, 1.0, 102.0).share
    assert one.above(0, 1.0, 106.0) == slow.above(0, 1.0, 106.0)
