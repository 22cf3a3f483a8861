"""Who lacks FULL blocks alone keeps nobody waiting that needs none of them."""

from typing import Any

import pytest

from firsttoken_runtime.scheduler import order
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime.scheduling import URGENT, caching_scheduler, decoded, drain, prefilled, run_step, sequence


def shared(number: int, *, max_tokens: int = 4, arrival_s: float = 1.0, request_class: str = "") -> Sequence:
    """It needs four FULL blocks for its prompt, which is declared as shared."""
    prompt = range(100 * number, 100 * number + 64)
    return sequence(number, prompt, max_tokens, shared=64, arrival_s=arrival_s, request_class=request_class)


def private(number: int, *, max_tokens: int = 4, arrival_s: float = 2.0) -> Sequence:
    return sequence(number, range(100 * number, 100 * number + 64), max_tokens, arrival_s=arrival_s)


def full_pool(*, num_quantized: int = 80, **changes: Any) -> scheduling.Scheduler:
    """Number 1 runs and has all FULL blocks."""
    one = caching_scheduler(
        num_blocks=4, num_quantized=num_quantized, max_num_batched_tokens=512, chunk_tokens=512, **changes
    )
    one.submit(shared(1, max_tokens=30, arrival_s=0.0, request_class=URGENT))
    assert prefilled(run_step(one)) == [1]
    return one


@pytest.mark.parametrize("has_classes", [True, False])
def test_who_needs_no_full_block_passes(has_classes: bool) -> None:
    one = full_pool(priority=has_classes)
    for number in range(2, 9):
        one.submit(shared(number))
    one.submit(private(9))
    assert prefilled(run_step(one, now=3.0)) == [9], "more prompts are before it than a step takes"


def test_nobody_who_came_later_than_the_head_start_passes() -> None:
    one = full_pool()
    latest_s = 1.0 + order.MAX_HEAD_START_S
    one.submit(shared(2))
    one.submit(private(3, arrival_s=latest_s))
    one.submit(private(4, arrival_s=latest_s + 0.1))
    assert prefilled(run_step(one, now=latest_s + 1.0)) == [3]


def test_who_lacks_a_slot_or_other_blocks_too_is_passed_by_nobody() -> None:
    for changes in ({"max_num_seqs": 1}, {"num_quantized": 3}):
        one = full_pool(**changes)
        one.submit(sequence(2, range(200, 300), shared=64, arrival_s=1.0))
        one.submit(sequence(3, 10, arrival_s=2.0))
        assert prefilled(run_step(one, now=3.0)) == [], changes


def test_nobody_passes_one_that_lacks_a_slot_too_by_preempting() -> None:
    one = full_pool(max_num_seqs=2)
    one.submit(private(2, max_tokens=30))
    assert prefilled(run_step(one)) == [2]
    one.submit(shared(3, request_class=URGENT))
    one.submit(sequence(4, range(400, 464), arrival_s=2.0, request_class=URGENT))
    assert prefilled(run_step(one, now=3.0)) == []
    assert one.stats().preemptions_total == 0


def test_what_passes_does_not_take_the_place_of_who_waits() -> None:
    """Two slots: one is passed through, the other becomes free with the FULL blocks."""
    one = full_pool(max_num_seqs=2)
    one.submit(shared(2))
    for number in range(3, 40):
        one.submit(private(number))
    while 1 in decoded(step := run_step(one, now=3.0)):
        assert 2 not in prefilled(step)
    assert prefilled(step) == [2]
    drain(one)
    assert one.stats().blocks_used == 0
