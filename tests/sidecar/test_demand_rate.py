"""Work a second, by priority, of the last seconds."""

import pytest

from firsttoken_sidecar.demand_rate import DemandRate


def test_a_steady_load_is_its_rate() -> None:
    one = DemandRate(memory_s=5.0)
    for number in range(1000):
        one.add(10, 0.05, number / 10)
        one.add(0, 0.02, number / 10)
    assert one.share(10, 99.9) == pytest.approx(0.5, rel=0.05)
    assert one.above(0, 99.9) == pytest.approx(0.5, rel=0.05)
    assert one.above(-1, 99.9) == pytest.approx(0.7, rel=0.05)
    assert one.above(10, 99.9) == 0.0
    assert set(one.priorities()) == {0, 10}


def test_it_is_forgotten_and_time_never_runs_backwards() -> None:
    one = DemandRate(memory_s=1.0)
    one.add(0, 1.0, 10.0)
    assert one.share(0, 9.0) == one.share(0, 10.0) == 1.0
    assert one.share(0, 20.0) < 0.001
