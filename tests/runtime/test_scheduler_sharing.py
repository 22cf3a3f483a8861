"""A prefix that is being computed is computed once: who waits, for whom, and until when."""

import pytest

from firsttoken_runtime.scheduler import rules, sharing, turns
from firsttoken_runtime.scheduler import scheduler as scheduling
from runtime import kv_model
from runtime.scheduling import (
    BATCH,
    URGENT,
    caching_scheduler,
    decoded,
    drain,
    prefilled,
    run_step,
    sampled,
    sequence,
)


def two(**changes: object) -> scheduling.Scheduler:
    """The second waits for 128 tokens that the first computes in chunks of 64; both have 150."""
    one = caching_scheduler(**changes)  # type: ignore[arg-type]
    one.submit(sequence(1, range(150), 9))
    one.submit(sequence(2, [*range(130), *range(900, 920)], 9, arrival_s=1.0))
    return one


def waits(one: scheduling.Scheduler) -> int:
    return one._roster.reuse.in_flight.num_followers


def test_the_second_waits_and_then_finds_what_the_first_computed() -> None:
    one = two()
    assert prefilled(run_step(one)) == [1]
    assert (waits(one), one.stats().waiting) == (1, 1)
    assert prefilled(run_step(one)) == [1]
    assert waits(one) == 0, "128 tokens are there"
    step = run_step(one)
    assert [(w.sequence.sequence_id, w.first_token, w.num_tokens) for w in step.prefills] == [
        (1, 128, 22),
        (2, 128, 22),
    ]
    drain(one)
    assert one.stats().rule_decisions[rules.Reason.SHARING_WAITS] == 1
    assert one.stats().prefix_hit_tokens_total["device"] == 128


def test_who_waits_gets_in_nobodys_way() -> None:
    """All that follow are passed over in the same step, and the leader gets the whole budget if alone."""
    one = caching_scheduler(chunk_tokens=128)
    for number in range(20):
        one.submit(sequence(number, [*range(140), number], 2, arrival_s=number))
    step = one.schedule(0.0)
    assert waits(one) == 19
    assert [work.num_tokens for work in step.prefills] == [128]
    one.commit(step, sampled(step), 0.0)
    assert waits(one) == 0
    assert prefilled(run_step(one)) == [0, 1, 2, 3], "128 tokens are all they share in whole blocks"
    one = caching_scheduler()
    for number in range(20):
        one.submit(sequence(number, [*range(140), number], 2, arrival_s=number))
    one.submit(sequence(99, range(500, 550), 2, arrival_s=99.0))
    assert prefilled(run_step(one)) == [0, 99]
    assert waits(one) == 19


def test_without_the_setting_or_with_a_salt_nobody_waits() -> None:
    one = two(in_flight_sharing=False)
    assert prefilled(run_step(one)) == [1, 2]
    one = caching_scheduler(max_num_batched_tokens=512)
    for number, salt in ((1, "a"), (2, "b"), (3, "a")):
        one.submit(sequence(number, range(150), salt=salt, arrival_s=number))
    assert prefilled(run_step(one)) == [1, 2], "never across salts"
    assert waits(one) == 1


def test_prompt_logprobs_follow_nobody_but_lead() -> None:
    one = caching_scheduler()
    one.submit(sequence(1, range(150)))
    one.submit(sequence(2, range(150), arrival_s=1.0, prompt_logprobs=0))
    assert prefilled(run_step(one)) == [1, 2]
    one = caching_scheduler()
    one.submit(sequence(1, range(150), prompt_logprobs=0))
    one.submit(sequence(2, range(150), arrival_s=1.0))
    assert prefilled(run_step(one)) == [1]
    drain(one)
    assert one.stats().prefix_hit_tokens_total["device"] == 144


@pytest.mark.parametrize("how", ["abort", "fail", "preempt"])
def test_the_first_follower_leads_when_the_leader_stops(how: str) -> None:
    one = caching_scheduler(num_blocks=40)
    kv = kv_model.KvModel()
    for number in (1, 2, 3):
        one.submit(sequence(number, range(250), arrival_s=number))
    run_step(one, kv=kv)
    assert waits(one) == 2
    if how == "abort":
        one.abort(1)
    elif how == "fail":
        kv.fail(one, one.schedule(0.0))
    else:
        (first,) = one._roster.running
        one._roster.preempt(first, 0.0)
        one.hold(1)
    one.check_integrity()
    assert waits(one) == 0
    assert one.stats().rule_decisions[rules.Reason.SHARING_GONE] == 2
    step = run_step(one, kv=kv)
    assert prefilled(step) == [2]
    assert step.prefills[0].first_token == 64, "what was published stays"
    assert waits(one) == 1
    one.release(1)
    drain(one, kv=kv)


def test_the_first_follower_leads_after_two_steps_without_progress() -> None:
    """Two prompts a step, and more urgent ones in each."""
    one = caching_scheduler(max_prefill_batch=2, max_num_seqs=16)
    for number in (1, 2):
        one.submit(sequence(number, range(250), request_class=BATCH, arrival_s=number))
    assert prefilled(run_step(one)) == [1]
    following = []
    for number in range(10, 22):
        one.submit(sequence(number, range(number * 1000, number * 1000 + 60), 1, request_class=URGENT))
        if number % 2:
            assert prefilled(run_step(one)) == [number - 1, number]
            following.append(waits(one))
    assert following[: sharing.MAX_STALLED_STEPS] == [1, 0]
    assert one.stats().rule_decisions[rules.Reason.SHARING_STALLED] == 1
    drain(one)


def test_the_leader_inherits_the_class_of_its_followers() -> None:
    one = caching_scheduler(max_prefill_batch=1, num_blocks=200)
    leader = sequence(1, range(250), request_class=BATCH)
    one.submit(leader)
    run_step(one)
    one.submit(sequence(2, range(250), request_class=URGENT, arrival_s=1.0))
    one.submit(sequence(3, range(700, 900), request_class="middle", arrival_s=0.5))
    # The urgent one is first in line, finds that its prefix is computed, and lends its class.
    shapes = [prefilled(run_step(one)) for _ in range(3)]
    assert shapes[1:] == [[1], [1]], "before the middle class"
    drain(one)


def test_a_leader_with_an_urgent_follower_is_no_victim_of_the_middle_class() -> None:
    one = caching_scheduler(max_num_seqs=2)
    one.submit(sequence(1, range(250), 40, request_class=BATCH))
    one.submit(sequence(2, range(500, 510), 40, request_class=BATCH, arrival_s=-1.0))
    run_step(one)
    one.submit(sequence(3, range(250), request_class=URGENT, arrival_s=1.0))
    one.submit(sequence(4, range(800, 820), request_class="middle", arrival_s=1.0))
    step = run_step(one)
    assert [victim.sequence_id for victim in step.preempted] == [2]
    assert 1 in prefilled(step)
    drain(one)


def test_a_follower_that_ends_takes_its_class_with_it() -> None:
    one = caching_scheduler()
    leader = sequence(1, range(250), request_class=BATCH)
    one.submit(leader)
    run_step(one)
    one.submit(sequence(2, range(250), request_class=URGENT, arrival_s=1.0))
    one.submit(sequence(3, range(250), request_class="middle", arrival_s=1.0))
    run_step(one)
    priorities = [one._roster.order.priority(leader)]
    for number in (2, 3):
        one.abort(number)
        one.check_integrity()
        priorities.append(one._roster.order.priority(leader))
    assert priorities == [10, 5, 0]


def test_the_turn_of_who_waits_for_a_prefix_is_its_leaders() -> None:
    one = caching_scheduler(max_num_seqs=64, num_blocks=300)
    leader = sequence(1, range(250), request_class=BATCH, arrival_s=5.0)
    one.submit(leader)
    run_step(one, now=5.0)
    one.submit(sequence(2, range(250), request_class=BATCH, arrival_s=0.0))
    run_step(one, now=5.1)
    assert waits(one) == 1
    assert one._prefills._overdue(one._roster, turns.OVERDUE_S) is leader
    assert one._prefills._overdue(one._roster, turns.OVERDUE_S - 0.1) is None


def test_who_waits_for_a_prefix_does_not_starve() -> None:
    """Urgent prompts fill every step: it begins within the bound of `turns`."""
    one = caching_scheduler(max_prefill_batch=1, max_num_seqs=64, num_blocks=300)
    follower = sequence(2, range(250), request_class=BATCH, arrival_s=1.0)
    one.submit(sequence(1, range(250), request_class=BATCH))
    one.submit(follower)
    run_step(one)
    now, steps = 11.0, 0
    while not follower.num_computed_tokens:
        number = 100 + steps
        prompt = range(number * 999, number * 999 + 60)
        one.submit(sequence(number, prompt, 1, request_class=URGENT, arrival_s=now))
        run_step(one, now)
        now += 0.01
        steps += 1
        assert steps <= turns.EVERY * (4 + 1)


def test_a_prefix_that_another_computes_first_is_not_waited_for() -> None:
    """One that is scored follows nobody, and here it gets more of each step than the leader."""
    one = caching_scheduler(max_num_batched_tokens=96)
    leader, follower = sequence(1, range(200), 1), sequence(2, range(200), 1, arrival_s=1.0)
    scored = sequence(3, range(200), 1, request_class=URGENT, prompt_logprobs=0)
    for each in (leader, follower):
        one.submit(each)
    run_step(one)
    assert waits(one) == 1
    one.submit(scored)
    while scored.num_computed_tokens < 192:
        assert not follower.was_admitted
        run_step(one)
    assert leader.num_computed_tokens < 192
    assert waits(one) == 0
    run_step(one)
    assert follower.cached_tokens == 192
    drain(one)


def test_static_batches_do_not_wait_for_each_other() -> None:
    one = caching_scheduler(continuous_batching=False, chunk_tokens=None)
    for number in (1, 2):
        one.submit(sequence(number, range(100)))
    assert prefilled(run_step(one)) == [1, 2]
    drain(one)


def test_a_held_follower_waits_for_nobody() -> None:
    one = two()
    run_step(one)
    one.hold(2)
    assert waits(one) == 0
    one.check_integrity()
    one.release(2)
    assert decoded(run_step(one)) == []
    drain(one)


def test_a_switch_wakes_everybody() -> None:
    one = two()
    run_step(one)
    one.switch(one.limits, lineage=b"two")
    one.check_integrity()
    assert waits(one) == 0
    assert prefilled(run_step(one)) == [1]
    assert waits(one) == 1, "and they share again"
    drain(one)
