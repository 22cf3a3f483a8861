"""What the scheduler measures and reports."""

import gc
import random
from types import FunctionType, ModuleType

import pytest

from firsttoken_api.step_time import StepTime
from firsttoken_runtime.scheduler import classes, intervals, lengths, speed
from runtime import simulation
from runtime.scheduling import BATCH, URGENT, run_step, sampled, scheduler, sequence


def test_use_of_memory_is_weighted_by_time_while_somebody_waits() -> None:
    one = scheduler(max_num_seqs=1, num_blocks=20)
    one.submit(sequence(1, prompt=20, max_tokens=3))
    one.submit(sequence(2, prompt=5, max_tokens=1, arrival_s=1.0))
    step = one.schedule(10.0)
    one.commit(step, sampled(step), 12.0)
    stats = one.stats()
    assert stats.kv_allocated_slot_seconds_total == 2.0 * 32
    assert stats.kv_needed_slot_seconds_total == 2.0 * 20
    assert stats.kv_live_slot_seconds_total == 2.0 * 10, "written in this step: half"
    assert (stats.live_slots, stats.needed_slots, stats.allocated_slots) == (20, 21, 32)
    step = one.schedule(13.0)
    one.commit(step, sampled(step), 13.5)
    assert one.stats().kv_allocated_slot_seconds_total == (2.0 + 1.5) * 32, "since the last commit"
    assert one.stats().kv_live_slot_seconds_total == 2.0 * 10 + 1.5 * 20.5
    one.abort(2)
    step = one.schedule(14.0)
    one.commit(step, sampled(step), 15.0)
    assert one.stats().kv_allocated_slot_seconds_total == (2.0 + 1.5) * 32, "nobody waits"
    assert one.stats().allocated_slots == one.stats().live_slots == 0


def test_idle_time_does_not_count() -> None:
    one = scheduler(max_num_seqs=1)
    one.submit(sequence(1, max_tokens=1))
    run_step(one, now=1.0)
    one.submit(sequence(2))
    one.submit(sequence(3))
    step = one.schedule(1000.0)
    one.commit(step, sampled(step), 1001.0)
    assert one.stats().kv_allocated_slot_seconds_total == 16.0


def test_time_in_which_everybody_is_held_does_not_count() -> None:
    """A grammar that compiles for minutes is no wait for memory."""
    one = scheduler(max_num_seqs=1)
    for number in (1, 2, 3):
        one.submit(sequence(number, prompt=20, max_tokens=number))
    one.hold(2)
    one.hold(3)
    step = one.schedule(1.0)
    one.commit(step, sampled(step), 2.0)
    assert not one.has_work
    one.release(2)
    one.release(3)
    step = one.schedule(1000.0)
    one.commit(step, sampled(step), 1001.0)
    assert one.stats().kv_allocated_slot_seconds_total == 2 * 32


def test_a_held_one_counts_in_the_class_that_is_in_force() -> None:
    one = scheduler()
    one.submit(sequence(1, request_class=URGENT))
    one.hold(1)
    one.switch(one.limits, classes=classes.ClassTable((classes.RequestClass("new", 1),)))
    assert one.stats().waiting_by_class == {"new": 1}


def reachable(root: object) -> int:
    """Objects that hang on it."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen[id(one)] = one
            left += gc.get_referents(one)
    return len(seen)


def test_nothing_is_kept_of_what_was_served() -> None:
    """However long it runs, and whether or not anybody asks for numbers."""
    one = scheduler(num_blocks=12, max_num_seqs=3)
    sizes = []
    for number in range(1500):
        name = (URGENT, BATCH)[number % 2]
        one.submit(
            sequence(number, prompt=30, max_tokens=1 + number % 40, request_class=name, arrival_s=number)
        )
        one.hold(number)
        one.release(number)
        if number % 7 == 0:
            one.abort(number - 3)
        while one.stats().waiting > 4:
            run_step(one, now=float(number))
        if number % 500 == 499:
            while one.has_work:
                run_step(one, now=float(number))
            sizes.append(reachable(one))
    assert one.stats().preemptions_total > 0
    assert sizes[2] < sizes[1] + 30, sizes


def test_numbers_by_class() -> None:
    one = scheduler(max_num_seqs=1)
    for number, name in enumerate((URGENT, URGENT, BATCH, "gone")):
        one.submit(sequence(number, prompt=10 + number, request_class=name))
    one.hold(3)
    stats = one.stats()
    assert stats.waiting_by_class == {URGENT: 2, "middle": 0, BATCH: 2}
    assert stats.backlog_by_class == {URGENT: 21, "middle": 0, BATCH: 25}
    assert (stats.waiting, stats.backlog_tokens) == (4, 46)
    one.release(3)
    while one.has_work:
        run_step(one)
    assert one.stats().lengths_by_class == {URGENT: 4.0, BATCH: 4.0}
    assert one.stats().waiting_by_class == {URGENT: 0, "middle": 0, BATCH: 0}


def test_speed_is_measured_from_the_clock_of_the_steps() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=60, max_tokens=4))
    now = 5.0
    for duration_s in (0.5, 0.2, 0.2, 0.2):
        step = one.schedule(now)
        now += duration_s
        one.commit(step, sampled(step), now)
    assert one.stats().prefill_tokens_per_s == pytest.approx(120.0)
    assert one.stats().tpot_p95_s == pytest.approx(0.2, rel=0.03)


def test_reference_blocks_follow_what_was_seen() -> None:
    one = scheduler()
    assert one.stats().reference_blocks == 0
    for number in range(3):
        one.submit(sequence(number, prompt=40, max_tokens=10))
    while one.has_work:
        run_step(one)
    assert one.stats().reference_blocks == 10, "3 sequences x 50 tokens / 16"


def test_a_mixed_step_is_split_by_tokens() -> None:
    one = speed.Speed()
    assert one.prefill_tokens_per_s == one.tpot_s == one.tpot_p95_s(0.0) == 0.0
    one.note_step(prefill_tokens=30, all_tokens=40, duration_s=0.4)
    assert one.prefill_tokens_per_s == pytest.approx(100.0)
    one.note_step(prefill_tokens=0, all_tokens=40, duration_s=9.0)
    assert one.prefill_tokens_per_s == pytest.approx(100.0)


def test_expected_work_uses_what_was_measured() -> None:
    one = speed.Speed()
    one.note_step(prefill_tokens=100, all_tokens=100, duration_s=0.5)
    one.note_gaps(1.0, 0.1, 4)
    assert one.work_s(1000, 20) == pytest.approx(1000 / 200 + 20 * 0.1)


def test_the_percentile_forgets_what_is_older_than_the_window() -> None:
    one = intervals.IntervalWindow(30.0)
    one.add(0.5, 1.0, count=100)
    assert one.p95_s(0.5) == pytest.approx(1.0, rel=0.03)
    one.add(20.0, 0.1, count=1000)
    assert one.p95_s(20.0) == pytest.approx(1.0, rel=0.03), "9 % of the tokens"
    one.add(29.0, 0.1, count=1000)
    assert one.p95_s(29.0) == pytest.approx(0.1, rel=0.03), "4.8 %"
    assert one.p95_s(40.0) == pytest.approx(0.1, rel=0.03)
    assert one.p95_s(70.0) == 0.0


def test_the_percentile_forgets_what_nobody_asks_for() -> None:
    one = intervals.IntervalWindow(1.0)
    for second in range(1000):
        one.add(float(second), 0.05)
    assert len(one._seconds) <= 3


def test_medians_are_of_the_last_answers() -> None:
    one = lengths.OutputLengths()
    assert one.median("a") is None
    for length in (9, 1, 5):
        one.add("a", length, length + 10)
    assert one.median("a") == 5
    one.add("a", 7, 17)
    assert one.median("a") == 6
    for _ in range(lengths.WINDOW):
        one.add("a", 100, 110)
    assert one.medians() == {"a": 100}


def test_the_prices_of_steps_are_found_from_the_steps() -> None:
    """Whatever was measured at the start, also while answers and prompts share steps."""
    one = scheduler(num_blocks=400, max_num_batched_tokens=128)
    one.assume(StepTime(fixed_s=0.2, per_prefill_token_s=0.0001))
    assert one.stats().step_time == StepTime(fixed_s=0.2, per_prefill_token_s=0.0001)

    def draw(numbers: random.Random, client: int) -> simulation.Request:
        return simulation.Request(prompt=numbers.randint(5, 120), max_tokens=numbers.randint(1, 20))

    simulation.closed_loop(one, draw, clients=12, requests=150)
    found = one.stats().step_time
    assert found is not None
    for prefill, decoding in ((100, 0), (64, 6), (0, 8)):
        true_s = simulation.STEP_S + simulation.TOKEN_S * (prefill + decoding)
        assert found.seconds(prefill, decoding, 0) == pytest.approx(true_s, rel=0.15), (prefill, decoding)


def test_a_look_has_what_an_estimate_needs() -> None:
    one = scheduler(max_num_seqs=2, max_num_batched_tokens=64, max_prefill_batch=3)
    for number in range(4):
        one.submit(sequence(number, prompt=20, max_tokens=5))
    run_step(one)
    run_step(one)
    stats = one.stats()
    assert (stats.max_num_seqs, stats.max_prefill_batch) == (2, 3)
    assert (stats.running, stats.decoding, stats.waiting) == (2, 2, 2)
    assert stats.chunk_tokens == 64 - stats.decoding
    assert stats.context_tokens == 2 * 21
