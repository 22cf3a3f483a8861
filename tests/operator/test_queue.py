"""The keyed queue: coalescing, per-key serial, backoff. Time is a number here."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_operator import queue
from firsttoken_operator.queue import Key, Queue, Retry, RetryAfterError, Schedule

A, B, C = ("default", "a"), ("default", "b"), ("default", "c")


class ExpectedError(Exception):
    pass


def test_events_about_one_key_coalesce() -> None:
    schedule = Schedule()
    for _ in range(100):
        schedule.add(A, 0.0)
    assert schedule.depth(0.0) == 1
    assert schedule.take(0.0) == A
    assert schedule.take(0.0) is None
    schedule.finish(A, 0.0)
    assert schedule.take(1_000.0) is None


def test_keys_come_in_the_order_in_which_they_fell_due() -> None:
    schedule = Schedule()
    schedule.add(B, 1.0)
    schedule.add(A, 2.0)
    schedule.add(C, 0.0, delay_s=1.5)
    assert [schedule.take(5.0) for _ in range(4)] == [B, C, A, None]


def test_a_key_in_work_is_not_handed_out_twice_but_remembered() -> None:
    schedule = Schedule()
    schedule.add(A, 0.0)
    schedule.add(B, 0.1)
    assert schedule.take(1.0) == A
    schedule.add(A, 1.0)
    assert schedule.take(1.0) == B
    assert schedule.take(1.0) is None
    schedule.finish(A, 2.0)
    assert schedule.take(2.0) == A


def test_an_earlier_request_wins_over_a_later_one() -> None:
    schedule = Schedule()
    schedule.add(A, 0.0, delay_s=300.0)
    schedule.add(A, 1.0, delay_s=5.0)
    schedule.add(A, 1.0, delay_s=50.0)
    assert schedule.next_due(1.0) == 5.0
    assert schedule.take(5.9) is None
    assert schedule.take(6.0) == A
    assert schedule.take(1_000.0) is None  # the entry of 300 s is not left behind


def test_failures_back_off_from_one_second_to_five_minutes() -> None:
    schedule = Schedule()
    delays = []
    now = 0.0
    for _ in range(12):
        schedule.add(A, now)
        assert schedule.take(now) == A
        delays.append(schedule.fail(A, now, jitter=0.0))
        now += delays[-1]
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-1] == 300.0
    schedule.take(now)
    schedule.finish(A, now)
    schedule.add(A, now)
    schedule.take(now)
    assert schedule.fail(A, now, jitter=0.0) == 1.0  # a success forgets


@given(failures=st.integers(1, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_backoff_stays_within_its_bounds(failures: int, jitter: float) -> None:
    delay_s = queue.backoff_s(failures, jitter)
    assert 0.8 <= delay_s <= 300.0


def test_an_event_brings_a_failing_key_forward() -> None:
    schedule = Schedule()
    schedule.add(A, 0.0)
    schedule.take(0.0)
    schedule.fail(A, 0.0, jitter=0.0, at_least_s=60.0)
    assert schedule.take(59.0) is None
    schedule.add(A, 59.0)
    assert schedule.take(59.0) == A


def test_a_nudge_does_not_wake_what_keeps_failing() -> None:
    schedule = Schedule()
    schedule.nudge(A, 0.0)
    assert schedule.take(0.0) == A
    schedule.fail(A, 0.0, jitter=0.0, at_least_s=60.0)
    schedule.nudge(A, 1.0)
    assert schedule.take(59.0) is None
    assert schedule.take(60.0) == A


def test_age_counts_from_the_first_event() -> None:
    schedule = Schedule()
    schedule.add(A, 10.0)
    schedule.add(A, 20.0)
    assert schedule.oldest_s(25.0) == 15.0
    schedule.take(25.0)
    assert schedule.oldest_s(25.0) == 0.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10), st.booleans()), max_size=60))
def test_every_request_is_followed_by_a_run(steps: list[tuple[str, float, bool]]) -> None:
    schedule = Schedule()
    asked: Counter[Key] = Counter()
    ran: Counter[Key] = Counter()
    now = 0.0
    working: list[Key] = []
    for name, wait, do_finish in steps:
        key = ("default", name)
        now += wait
        schedule.add(key, now)
        asked[key] += 1
        taken = schedule.take(now)
        if taken is not None:
            assert taken not in working
            working.append(taken)
            ran[taken] += 1
            asked[taken] = 0
        if do_finish and working:
            schedule.finish(working.pop(0), now)
    while working:
        schedule.finish(working.pop(), now)
    while (taken := schedule.take(now)) is not None:
        asked[taken] = 0
        schedule.finish(taken, now)
    assert not +asked
    assert schedule.next_due(now) is None


async def test_workers_run_keys_side_by_side_but_never_one_twice() -> None:
    work = Queue()
    running: Counter[Key] = Counter()
    most = 0
    done: Counter[Key] = Counter()
    finished = asyncio.Event()

    async def reconcile(key: Key) -> Retry | None:
        nonlocal most
        running[key] += 1
        assert running[key] == 1
        most = max(most, running.total())
        await asyncio.sleep(0.002)
        running[key] -= 1
        done[key] += 1
        if done[key] == 1:
            work.add(key)
        if len(done) == 3 and min(done.values()) >= 2:
            finished.set()
        return None

    for key in (A, B, C):
        work.add(key)
    task = asyncio.create_task(work.run(reconcile, lambda *_: None, (), workers=2))
    async with asyncio.timeout(5):
        await finished.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert most == 2


async def test_expected_errors_are_retried_and_others_end_the_run() -> None:
    work = Queue(jitter=lambda: 0.999)
    tries: list[str] = []
    failures: list[tuple[str, float]] = []

    async def reconcile(key: Key) -> Retry | None:
        tries.append(key[1])
        if len(tries) == 1:
            raise ExpectedError
        raise ZeroDivisionError

    def failed(key: Key, error: BaseException, delay_s: float) -> None:
        failures.append((type(error).__name__, delay_s))

    work.add(A)
    async with asyncio.timeout(5):
        with pytest.raises(ExceptionGroup) as ended:
            await work.run(reconcile, failed, (ExpectedError,), workers=3)
    assert ended.group_contains(ZeroDivisionError)
    assert tries == ["a", "a"]
    ((name, delay_s),) = failures
    assert name == "ExpectedError"
    assert delay_s == pytest.approx(0.8, abs=0.01)


async def test_a_server_that_asks_to_wait_is_waited_for() -> None:
    work = Queue()
    delays: list[float] = []
    failed = asyncio.Event()

    async def reconcile(key: Key) -> Retry | None:
        raise RetryAfterError(30.0)

    def note(key: Key, error: BaseException, delay_s: float) -> None:
        delays.append(delay_s)
        failed.set()

    work.add(A)
    task = asyncio.create_task(work.run(reconcile, note, (), workers=1))
    async with asyncio.timeout(5):
        await failed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert delays == [30.0]


async def test_a_reconcile_may_ask_to_be_run_again() -> None:
    work = Queue()
    runs = 0
    twice = asyncio.Event()

    async def reconcile(key: Key) -> Retry | None:
        nonlocal runs
        runs += 1
        if runs == 2:
            twice.set()
            return None
        return Retry(0.01)

    work.add(A)
    task = asyncio.create_task(work.run(reconcile, lambda *_: None, (), workers=1))
    async with asyncio.timeout(5):
        await twice.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
