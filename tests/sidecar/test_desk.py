"""The books together: what is let in is ahead of what comes next, until its first token and its end."""

import pytest

from firsttoken_api import ttft_estimate
from firsttoken_sidecar import admission, backlog
from firsttoken_sidecar.desk import Desk, Request
from sidecar.admission_builders import engine, request


def desk(**changes: object) -> Desk:
    one = Desk()
    one.hear(engine(**changes), 100.0)
    return one


def ask(at: Desk, now: float, **changes: object) -> backlog.Entry | admission.Refused:
    """Let in or refused, as the admitter does it."""
    asked: Request = request(**{"arrival_s": now} | changes)
    answer = at.decide(asked, 0, now)
    if isinstance(answer, admission.Refused):
        at.refuse(asked, 0, answer, now)
        return answer
    return at.admit(asked, 0, answer.estimate, now)


def fill(at: Desk, now: float, count: int, **changes: object) -> list[backlog.Entry]:
    entries = []
    for _ in range(count):
        one = ask(at, now, **changes)
        assert isinstance(one, backlog.Entry)
        entries.append(one)
    return entries


def test_each_request_is_behind_those_that_were_let_in() -> None:
    at = desk()
    first, *others = fill(at, 100.0, 3)
    assert first.expected_s == pytest.approx(0.15)
    assert first.expected_s < others[0].expected_s < others[1].expected_s


def test_a_line_that_is_full_refuses_and_has_room_again_later() -> None:
    at = desk(max_num_seqs=64)
    entries: list[backlog.Entry] = []
    while isinstance(one := ask(at, 100.0), backlog.Entry):
        entries.append(one)
        assert len(entries) < 100
    assert one.reason is admission.Reason.OBJECTIVE
    assert one.estimate.likely_s > 1.0
    for entry in entries:
        at.first_content(entry, 50, 100.5)
        at.closed(entry, 10, 100.6)
    assert isinstance(ask(at, 101.0), backlog.Entry)


def test_a_client_that_left_is_not_waited_for() -> None:
    at = desk()
    before = at.decide(request(), 0, 100.0).estimate
    (one,) = fill(at, 100.0, 1, prompt_tokens=400)
    at.closed(one, None, 100.0)
    at.closed(one, None, 100.0)
    assert at.decide(request(), 0, 100.0).estimate.expected_s == pytest.approx(before.expected_s, abs=0.2)
    assert at.load(100.0).ahead_tokens_by_priority == {}


def test_what_is_cached_need_not_be_computed() -> None:
    at = desk()
    whole = at.decide(request(prompt_tokens=500), 0, 100.0).estimate
    cached = at.decide(request(prompt_tokens=500), 480, 100.0).estimate
    assert cached.expected_s < whole.expected_s / 3


def test_slots_that_are_taken_are_waited_for_as_long_as_answers_run() -> None:
    at = desk()
    for entry in fill(at, 100.0, 4, max_tokens=40, limit_s=60.0):
        at.first_content(entry, 50, 100.4)
    waits = at.decide(request(arrival_s=100.4, limit_s=60.0), 0, 100.4).estimate.expected_s
    assert waits == pytest.approx(39 * 0.14 + 0.15, rel=0.15)
    more_urgent = at.decide(request(arrival_s=100.4, priority=5), 0, 100.4).estimate
    assert more_urgent.expected_s < 0.6, "less urgent answers make way"


def test_a_short_request_does_not_go_before_one_that_would_be_late_for_it() -> None:
    at = desk(tpot_mean_s=0.1, max_num_seqs=64)
    long_ones = fill(at, 100.0, 2, prompt_tokens=90, max_tokens=100)
    answer = at.decide(request(arrival_s=100.01, prompt_tokens=90, max_tokens=1), 0, 100.01)
    assert isinstance(answer, admission.Admitted), "one of them has time for it"
    pushed = 0
    while isinstance(one := ask(at, 100.01, prompt_tokens=90, max_tokens=1), backlog.Entry):
        pushed += 1
        assert pushed < 50
    assert one.reason in (admission.Reason.PROMISED, admission.Reason.OBJECTIVE)
    assert long_ones[-1].pushed_s > 0


def test_who_was_refused_is_let_in_at_its_time_before_who_comes_first() -> None:
    at = desk(max_num_seqs=64)
    while isinstance(ask(at, 100.0), backlog.Entry):
        pass
    back = request(body_hash=b"back", arrival_s=100.0)
    answer = at.decide(back, 0, 100.0)
    assert isinstance(answer, admission.Refused)
    retry_after_s = at.refuse(back, 0, answer, 100.0)
    assert 1 <= retry_after_s <= 10
    now = 100.0 + retry_after_s
    for entry in list(at.backlog.waiting):
        at.first_content(entry, 50, now - 0.1)
    back.arrival_s = now
    returned = at.decide(back, 0, now)
    assert isinstance(returned, admission.Admitted)
    at.admit(back, 0, returned.estimate, now)
    assert len(at.reservations) < 30


def test_answers_teach_how_long_the_next_ones_get() -> None:
    at = desk()
    for number in range(100):
        (one,) = fill(at, 100.0 + number, 1, max_tokens=1000, limit_s=1e4)
        at.first_content(one, 50, 100.2 + number)
        at.closed(one, 20, 100.5 + number)
    (last,) = fill(at, 300.0, 1, max_tokens=1000, limit_s=1e4)
    assert last.output_tokens < 60


def test_its_load_is_what_a_peer_would_estimate_by() -> None:
    at = desk(max_num_seqs=64)
    fill(at, 100.0, 2, priority=10)
    fill(at, 100.0, 3, prompt_tokens=30)
    load = at.load(100.0)
    assert load.ahead_tokens_by_priority == {"10": 100, "0": 90}
    assert load.ahead_requests_by_priority == {"10": 2, "0": 3}
    assert (load.waiting, load.running, load.max_num_seqs) == (5, 0, 64)
    assert load.prefill_tokens_per_s == pytest.approx(100 / 0.2)
    here = at.decide(request(limit_s=60.0), 0, 100.0).estimate.expected_s
    assert ttft_estimate.estimate(load, 0, 50) == pytest.approx(here, rel=0.4)


def test_an_engine_whose_rate_alone_is_known() -> None:
    at = desk(step_time=None, prefill_tokens_per_s=100.0, max_num_seqs=64)
    (one,) = fill(at, 100.0, 1, prompt_tokens=80)
    assert one.expected_s == pytest.approx(0.8)
    assert isinstance(ask(at, 100.0, prompt_tokens=80), admission.Refused)
