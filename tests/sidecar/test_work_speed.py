"""What an engine starts in a second, seen only while somebody waits."""

import pytest

from firsttoken_sidecar.work_speed import ASSUMED, LEAST, WorkSpeed


def busy(one: WorkSpeed, start_s: float, *, cost_s: float, every_s: float, count: int) -> float:
    """Starts one after another, with somebody behind each. -> the end"""
    one.joined(start_s)
    for number in range(count):
        one.started(cost_s, start_s + (number + 1) * every_s, is_line_empty=False)
    return start_s + count * every_s


def test_before_anything_is_seen_it_is_assumed() -> None:
    assert WorkSpeed().per_s == pytest.approx(ASSUMED)


def test_a_busy_engine_shows_its_speed() -> None:
    one = WorkSpeed()
    busy(one, 5.0, cost_s=0.06, every_s=0.05, count=800)
    assert one.per_s == pytest.approx(1.2, rel=0.02)


def test_a_surge_finds_what_was_known_and_not_a_sum_that_faded() -> None:
    one = WorkSpeed()
    end_s = busy(one, 0.0, cost_s=0.06, every_s=0.05, count=800)
    one.started(0.06, end_s + 0.05, is_line_empty=True)
    one.joined(end_s + 3600.0)
    assert one.per_s == pytest.approx(1.2, rel=0.03)


def test_times_in_which_nobody_waits_do_not_count() -> None:
    one = WorkSpeed()
    for number in range(200):
        one.joined(number * 10.0)
        one.started(0.04, number * 10.0 + 0.05, is_line_empty=True)
    assert one.per_s == pytest.approx(0.8, rel=0.05), "and not 0.004"


def test_who_leaves_without_a_token_ends_the_wait() -> None:
    one = WorkSpeed()
    end_s = busy(one, 0.0, cost_s=0.05, every_s=0.05, count=400)
    one.left(is_line_empty=True)
    one.started(0.05, end_s + 600.0, is_line_empty=True)
    assert one.per_s == pytest.approx(1.0, rel=0.02)


def test_it_follows_a_change_and_never_stops() -> None:
    one = WorkSpeed()
    end_s = busy(one, 0.0, cost_s=0.05, every_s=0.05, count=400)
    end_s = busy(one, end_s, cost_s=0.05, every_s=0.2, count=200)
    assert one.per_s == pytest.approx(0.25, rel=0.1)
    busy(one, end_s, cost_s=0.0, every_s=1.0, count=300)
    assert one.per_s == LEAST
