"""When the promise to one that was let in is broken by a delay."""

from typing import Any

from firsttoken_api.overtaking import NOBODY, Arriving
from firsttoken_sidecar import promises
from sidecar.admission_builders import entry


def is_broken(
    delay_s: float, *, spread: float = 0.0, now: float = 100.0, arriving: Arriving = NOBODY, **changes: Any
) -> bool:
    return promises.is_broken(entry(**changes), delay_s, spread, arriving, now)


def test_a_delay_beyond_the_limit_breaks_it() -> None:
    assert not is_broken(0.79)
    assert is_broken(0.81)
    assert is_broken(0.31, pushed_s=0.5), "what came between counts"
    assert is_broken(0.7, spread=0.4)


def test_what_passed_before_it_was_let_in_counts() -> None:
    assert is_broken(0.5, arrival_s=99.6, likely_s=0.3)
    assert not is_broken(0.3, arrival_s=99.6, likely_s=0.3)


def test_who_may_come_meanwhile_needs_room_for_the_time_that_is_left() -> None:
    half = Arriving(0.5)
    assert not is_broken(0.2)
    assert not is_broken(0.2, arriving=half)
    assert is_broken(0.35, arriving=half), "0.55 s become 1.1"
    assert not is_broken(0.3, arriving=half, now=100.2), "waiting is nearly over"


def test_nothing_is_broken_where_nothing_was_promised_or_all_is_lost() -> None:
    assert not is_broken(9.0, likely_s=1.1), "it was let in for its length, without a promise"
    assert not is_broken(9.0, pushed_s=1.0), "it is late already"
