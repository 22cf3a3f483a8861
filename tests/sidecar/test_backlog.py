"""Who is before whom, and when a slot becomes free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import backlog
from sidecar.admission_builders import entry


def filled(*entries: backlog.Entry) -> backlog.Backlog:
    books = backlog.Backlog()
    for one in entries:
        books.add(one)
    return books


def started(count: int, step: float = 0.0, **changes: object) -> backlog.Backlog:
    """`count` answers of 10, 20, 30 … tokens, all begun at that step."""
    entries = [entry(output_tokens=10.0 * (number + 1), **changes) for number in range(count)]
    books = filled(*entries)
    for one in entries:
        books.started(one, 100.0, step)
    return books


def test_more_urgent_ones_and_earlier_ones_are_ahead() -> None:
    books = filled(
        entry(priority=10, start_by_s=200.0, uncached_tokens=1),
        entry(start_by_s=101.0, uncached_tokens=20),
        entry(start_by_s=103.0, uncached_tokens=300),
        entry(priority=-1, start_by_s=1.0, uncached_tokens=4000),
    )
    ahead = books.ahead(0, 102.0, {})
    assert (ahead.tokens, ahead.requests, ahead.behind_tokens) == (21, 2, 4300)
    assert [one.uncached_tokens for one in ahead.pushed] == [300, 4000]
    assert books.ahead(20, 0.0, {}).tokens == 0


def test_what_the_running_step_computes_is_not_ahead() -> None:
    whole, part = entry(uncached_tokens=50), entry(uncached_tokens=500)
    ahead = filled(whole, part).ahead(0, 200.0, {whole: 50, part: 100})
    assert (ahead.tokens, ahead.requests, ahead.in_step) == (400, 1, 1)


def test_an_entry_moves_from_the_line_to_a_slot_to_nowhere() -> None:
    one = entry()
    books = filled(one)
    books.started(one, 101.0, 3)
    books.started(one, 102.0, 4)
    assert (len(books.line), list(books.running), one.first_content_s) == (0, [one], 101.0)
    books.close(one, 100.0)
    books.close(one, 100.0)
    assert not books.running
    gone = entry()
    books.add(gone)
    books.close(gone, 100.0)
    books.started(gone, 103.0, 5)
    assert not [*books.line, *books.waiting, *books.running]


def room(books: backlog.Backlog, **changes: object) -> float:
    facts = {
        "step": 0,
        "priority": 0,
        "requests_ahead": 0,
        "prompt_tokens": 50,
        "max_num_seqs": 3,
        "free_kv_tokens": float("inf"),
    }
    return books.steps_until_room(**facts | changes)  # type: ignore[arg-type]


def test_a_free_slot_is_not_waited_for() -> None:
    assert room(started(2)) == 0.0
    assert room(started(3), max_num_seqs=0) == 0.0, "nobody says how many there are"


def test_a_slot_comes_when_the_shortest_answer_ends() -> None:
    assert room(started(3)) == pytest.approx(9)
    assert room(started(3), step=4) == pytest.approx(5)
    assert room(started(3), requests_ahead=1) == pytest.approx(19)
    assert room(started(3), requests_ahead=5) > 29, "those ahead have to end as well"


def test_an_answer_that_is_longer_than_expected_goes_on_for_a_while() -> None:
    assert room(started(3), step=39, max_num_seqs=1) >= 10


def test_less_urgent_answers_make_way() -> None:
    assert room(started(3), priority=1) == 0.0


def test_memory_is_waited_for_like_a_slot() -> None:
    books = started(3)
    assert room(books, max_num_seqs=9, free_kv_tokens=60) == 0.0
    assert room(books, max_num_seqs=9, free_kv_tokens=0) == pytest.approx(9)
    assert room(books, max_num_seqs=9, free_kv_tokens=-60) == pytest.approx(29)


def test_work_that_nobody_here_let_in_counts_when_the_line_is_empty() -> None:
    books = backlog.Backlog()
    books.reconcile(700, 100.0)
    assert books.ahead(0, 0.0, {}).tokens == 700
    one = entry()
    books.add(one)
    books.reconcile(700, 101.0)
    assert books.ahead(0, 200.0, {}).tokens == 50
    books.close(one, 102.0)
    books.reconcile(650, 102.5)
    assert books.ahead(0, 200.0, {}).tokens == 0, "the report is of before it left"
    books.reconcile(30, 105.0)
    assert books.ahead(0, 200.0, {}).tokens == 30


def test_work_is_summed_by_tenant() -> None:
    books = filled(entry(tenant="a"), entry(tenant="b", cost_s=1.0), entry(tenant="a"))
    assert backlog.work_by_tenant(books.waiting) == pytest.approx({"a": 0.3, "b": 1.0})


orders = st.lists(st.tuples(st.integers(-2, 2), st.floats(0, 50), st.integers(1, 99)), max_size=20)


@given(orders, st.integers(-2, 2), st.floats(0, 50))
def test_ahead_and_behind_are_all_that_wait(
    waiting: list[tuple[int, float, int]], priority: int, start_by_s: float
) -> None:
    books = filled(
        *(entry(priority=one, start_by_s=start, uncached_tokens=tokens) for one, start, tokens in waiting)
    )
    ahead = books.ahead(priority, start_by_s, {})
    assert ahead.tokens + ahead.behind_tokens == sum(tokens for _, _, tokens in waiting)
    keys = [(-one.priority, one.start_by_s) for one in books.line]
    assert keys == sorted(keys)
