"""The step that runs is followed: by what comes out of it, and by its expected time where nothing does."""

import pytest

from firsttoken_sidecar.backlog import Backlog, Entry
from firsttoken_sidecar.pace import Pace
from firsttoken_sidecar.step_mirror import StepMirror
from sidecar.admission_builders import engine, entry


class Mirrored:
    def __init__(self, **changes: object) -> None:
        self.books, self.pace = Backlog(), Pace()
        self.pace.hear(engine(**changes))
        self.mirror = StepMirror(self.books, self.pace)

    def let_in(self, now: float, tokens: int = 50, **changes: object) -> Entry:
        one = entry(admitted_s=now, start_by_s=now, uncached_tokens=tokens, **changes)
        self.books.add(one)
        self.mirror.wake(now)
        return one

    def first_token(self, one: Entry, now: float) -> None:
        self.mirror.seen(now)
        self.books.started(one, now, self.mirror.number)
        self.mirror.seen(now)


def test_an_idle_engine_begins_a_step_with_the_first_request() -> None:
    at = Mirrored()
    assert at.mirror.rest_s(100.0) == 0.0
    one = at.let_in(100.0)
    assert at.mirror.given == {one: 50}
    assert at.mirror.rest_s(100.0) == pytest.approx(0.15)
    assert at.mirror.rest_s(100.1) == pytest.approx(0.05)


def test_who_comes_while_a_step_runs_is_in_the_next_one() -> None:
    at = Mirrored()
    first = at.let_in(100.0)
    second = at.let_in(100.05, 30)
    assert second not in at.mirror.given
    at.first_token(first, 100.15)
    assert at.mirror.given == {second: 30}
    assert at.mirror.rest_s(100.15) == pytest.approx(0.1 + 0.03 + 0.01)


def test_what_comes_out_a_moment_later_is_of_the_same_end() -> None:
    at = Mirrored()
    one, other = at.let_in(100.0, 20), at.let_in(100.0, 20)
    number = at.mirror.number
    at.first_token(one, 100.15)
    at.first_token(other, 100.16)
    assert at.mirror.number == number + 1


def test_steps_that_nobody_sees_are_reckoned() -> None:
    at = Mirrored()
    one = at.let_in(100.0, 1000)
    at.mirror.rest_s(100.9)
    assert one.left_tokens == 600, "four steps of 0.2 s"
    assert at.mirror.given == {one: 100}
    at.mirror.rest_s(150.0)
    assert one.left_tokens == 1, "its first token has not been seen"


def test_a_chunk_is_shared_and_the_rest_goes_to_the_first() -> None:
    at = Mirrored(chunk_tokens=200)
    at.let_in(99.0)
    entries = [entry(admitted_s=99.1, start_by_s=99.1 + number, uncached_tokens=150) for number in range(2)]
    for one in entries:
        at.books.add(one)
    first = next(iter(at.books.running), None) or at.books.line[0]
    at.first_token(first, 99.2)
    assert list(at.mirror.given.values()) == [100, 100]
    assert sum(at.mirror.given.values()) == 200


def test_no_more_prompts_than_slots_and_than_a_step_takes() -> None:
    at = Mirrored(max_num_seqs=3, max_prefill_batch=2)
    first = at.let_in(100.0, 5)
    for _ in range(5):
        at.let_in(100.01, 5)
    at.first_token(first, 100.11)
    assert len(at.mirror.given) == 2
    for one in list(at.mirror.given):
        at.first_token(one, 100.23)
    assert not at.mirror.given, "three answers run, all slots are taken"
    assert at.mirror.rest_s(100.23) == pytest.approx(0.13)


def test_an_engine_without_work_is_idle_again() -> None:
    at = Mirrored()
    one = at.let_in(100.0)
    at.first_token(one, 100.15)
    at.books.close(one, 100.0)
    at.mirror.seen(100.3)
    assert at.mirror.rest_s(100.3) == 0.0


def test_an_engine_that_says_nothing_of_its_steps_has_none() -> None:
    at = Mirrored(step_time=None)
    at.let_in(100.0)
    assert at.mirror.rest_s(100.0) == 0.0
    assert not at.mirror.given
