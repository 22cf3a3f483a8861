"""Times to come again: one after the other, kept for who comes in time, and nothing for who never does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import reservations

COST_S = 0.5


def refuse(
    books: reservations.Reservations, number: int, now: float, tenant: str = "", **changes: float
) -> int:
    facts: dict[str, Any] = {"wait_s": 0.4, "speed": 1.0, "share": 1.0} | changes
    return books.refuse((tenant, b"%d" % number), COST_S, now=now, **facts)


def test_a_place_is_there_at_its_time_and_gone_when_taken() -> None:
    books = reservations.Reservations()
    retry_after_s = refuse(books, 1, 100.0)
    assert retry_after_s == 1
    assert books.claim(("", b"1"), 100.5) is None, "too early"
    place = books.claim(("", b"1"), 101.05)
    assert place is not None
    assert books.claim(("", b"1"), 101.05) is place
    assert books.claim(("", b"2"), 101.05) is None, "another body"
    assert books.claim(("other", b"1"), 101.05) is None, "another tenant"
    books.take(place)
    assert books.claim(("", b"1"), 101.05) is None
    assert len(books) == 0


def test_a_place_is_kept_for_a_while_and_not_for_ever() -> None:
    books = reservations.Reservations()
    refuse(books, 1, 100.0)
    assert books.claim(("", b"1"), 102.5) is not None
    assert books.claim(("", b"1"), 102.7) is None


def test_places_follow_each_other_at_a_part_of_the_engines_speed() -> None:
    books = reservations.Reservations()
    times = [refuse(books, number, 100.0) for number in range(200)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(199 * COST_S / reservations.DENSITY, rel=0.02)
    faster = reservations.Reservations()
    assert [refuse(faster, number, 100.0, speed=10.0) for number in range(200)][-1] < times[-1] / 8


def test_who_asks_too_early_keeps_its_place() -> None:
    books = reservations.Reservations()
    for number in range(40):
        refuse(books, number, 100.0)
    promised = refuse(books, 40, 100.0)
    assert refuse(books, 40, 101.0) == promised - 1
    assert len(books) == 41


def test_each_tenant_has_a_line_of_its_own() -> None:
    books = reservations.Reservations()
    for number in range(300):
        refuse(books, number, 100.0, "flood", share=0.5)
    assert refuse(books, 0, 100.0, "calm", share=0.5) == 1


def test_the_urgent_do_not_stand_behind_the_others_nor_make_room_for_them() -> None:
    books = reservations.Reservations()
    for number in range(100):
        refuse(books, number, 100.0, priority=0)
    assert refuse(books, 100, 100.0, priority=10) == 1
    for number in range(30):
        place = books.claim(("", b"%d" % number), 102.0)
        if place is not None:
            books.take(place)
    assert books.expected_s(103.0, 5.0, 0) > books.expected_s(103.0, 5.0, 10) == 0.0


def test_who_never_returns_makes_times_short_and_keeps_no_room() -> None:
    def minutes(returns: bool) -> tuple[int, float]:
        books, now, retry_after_s = reservations.Reservations(), 100.0, 0
        open_places: list[tuple[float, int]] = []
        for number in range(600):
            now += 0.5
            retry_after_s = refuse(books, number, now)
            open_places.append((now + retry_after_s, number))
            while returns and open_places and open_places[0][0] <= now:
                place = books.claim(("", b"%d" % open_places.pop(0)[1]), now)
                assert place is not None
                books.take(place)
        return retry_after_s, books.expected_s(now, 1.0)

    shorter, room_for_nobody = minutes(returns=False)
    longer, room = minutes(returns=True)
    assert shorter < longer / 2
    assert room_for_nobody < 0.02 < 0.3 < room


def test_first_refusals_keep_no_room_for_clients_nobody_knows() -> None:
    books = reservations.Reservations()
    refuse(books, 1, 100.0)
    assert books.expected_s(100.5, 1.0) == 0.0


def test_no_more_places_than_a_limit_and_no_time_beyond_another() -> None:
    books = reservations.Reservations()
    times = [refuse(books, number, 100.0) for number in range(reservations.MOST_PLACES + 50)]
    assert len(books) == reservations.MOST_PLACES
    assert max(times) == reservations.LONGEST_RETRY_AFTER_S


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 3), st.floats(0, 30), st.booleans()), max_size=60))
def test_times_are_whole_seconds_in_bounds_and_books_agree(
    asks: list[tuple[int, float, float, bool]],
) -> None:
    books, now = reservations.Reservations(), 50.0
    for number, later_s, wait_s, takes in asks:
        now += later_s
        place = books.claim(("", b"%d" % number), now)
        if place is not None and takes:
            assert place.due_s - reservations.EARLIEST_S <= now < place.until_s
            books.take(place)
        else:
            assert 1 <= refuse(books, number, now, wait_s=wait_s) <= reservations.LONGEST_RETRY_AFTER_S
        assert books.expected_s(now, 2.0) >= 0
    books.expire(now + 2000)
    assert len(books) == 0
