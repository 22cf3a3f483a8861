"""A tenant alone has everything; beside others it is held to a part while it has more than its share."""

import pytest

from firsttoken_sidecar import fairness


def asked(*tenants: str, weight: float = 1.0, now: float = 100.0) -> fairness.Fairness:
    one = fairness.Fairness()
    for tenant in tenants:
        one.note_asked(tenant, weight, now)
    return one


def test_a_tenant_alone_has_all_of_it() -> None:
    one = asked("a")
    one.note_let_in("a", 5.0, 100.0)
    assert one.share("a", 1.0, 100.0) == 1.0
    assert one.part("a", 1.0, 0.1, {"a": 9.0}, 100.0) == 1.0


def test_who_has_more_than_its_share_is_held_to_a_part_of_it() -> None:
    one = asked("flood", "calm")
    one.note_let_in("flood", 5.0, 100.0)
    one.note_let_in("calm", 1.0, 100.0)
    waiting = {"flood": 0.9, "calm": 0.1}
    assert one.part("flood", 1.0, 0.1, waiting, 100.0) == pytest.approx(fairness.SHARE_PART / 2)
    assert one.part("calm", 1.0, 0.1, waiting, 100.0) == 1.0


def test_a_short_line_does_not_make_a_calm_tenant_a_flood() -> None:
    one = asked("flood", "calm")
    one.note_let_in("flood", 5.0, 100.0)
    one.note_let_in("calm", 1.0, 100.0)
    assert one.part("calm", 1.0, 0.1, {}, 100.0) == 1.0, "it alone waits, but it got less lately"


def test_weights_decide_the_share() -> None:
    one = asked("small")
    assert one.share("large", 3.0, 100.0) == pytest.approx(0.75)
    one.note_asked("large", 3.0, 100.0)
    assert one.share("small", 1.0, 100.0) == pytest.approx(0.25)
    one.note_let_in("large", 2.0, 100.0)
    one.note_let_in("small", 1.0, 100.0)
    waiting = {"large": 1.0, "small": 0.6}
    assert one.part("large", 3.0, 0.1, waiting, 100.0) == 1.0
    assert one.part("small", 1.0, 0.1, waiting, 100.0) == fairness.LEAST_PART


def test_who_has_not_asked_for_a_while_is_not_waited_for() -> None:
    one = asked("gone")
    later = 100.0 + fairness.RECENTLY_S + 0.1
    assert one.share("here", 1.0, later) == 1.0
    one.note_asked("here", 1.0, later)
    one.note_let_in("here", 1.0, later)
    assert one.part("here", 1.0, 0.1, {"here": 3.0}, later) == 1.0


def test_names_are_bounded() -> None:
    one = fairness.Fairness()
    for number in range(3000):
        one.note_asked(str(number), 1.0, 100.0)
        one.note_let_in(str(number), 1e-6, 100.0)
    assert one.share("new", 1.0, 100.0) == pytest.approx(1 / (fairness.MOST_TENANTS + 1))
    one.note_let_in("late", 1.0, 101.0)
    assert one.part("late", 1.0, 1.0, {"late": 5.0}, 101.0) == fairness.LEAST_PART
