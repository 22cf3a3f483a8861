"""Who gives way for a more urgent prompt, how often, and at what cost."""

from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import preemption
from firsttoken_runtime.scheduler import scheduler as scheduling_module
from runtime import scheduling
from runtime.scheduling import BATCH, URGENT, decoded, prefilled, run_step, scheduler, sequence


def full_of_batch(count: int = 3, **changes: object) -> scheduling_module.Scheduler:
    """`count` batch requests decode in as many slots."""
    one = scheduler(**{"max_num_seqs": count, "max_prefill_batch": count, **changes})  # type: ignore[arg-type]
    for number in range(1, count + 1):
        one.submit(sequence(number, max_tokens=100, request_class=BATCH, arrival_s=number))
    run_step(one)
    return one


def test_an_urgent_prompt_takes_the_slot_of_the_latest_of_the_lowest_class() -> None:
    one = full_of_batch()
    one.submit(sequence(9, request_class=URGENT, arrival_s=9.0))
    step = run_step(one)
    assert [victim.sequence_id for victim in step.preempted] == [3]
    assert (decoded(step), prefilled(step)) == ([1, 2], [9]), "the victim's token was taken back"


def test_the_lowest_class_gives_way_before_a_later_arrival() -> None:
    one = scheduler(max_num_seqs=2)
    one.submit(sequence(1, max_tokens=50, request_class=BATCH, arrival_s=0.0))
    one.submit(sequence(2, max_tokens=50, request_class="middle", arrival_s=5.0))
    run_step(one)
    one.submit(sequence(3, request_class=URGENT, arrival_s=6.0))
    assert [victim.sequence_id for victim in run_step(one).preempted] == [1]


def test_blocks_are_taken_too_and_nobody_gives_way_in_vain() -> None:
    one = scheduler(num_blocks=10, max_model_len=160)
    one.submit(sequence(1, prompt=60, max_tokens=60, request_class=BATCH))
    one.submit(sequence(2, prompt=40, max_tokens=60, request_class="middle"))
    run_step(one)
    run_step(one)
    one.submit(sequence(3, prompt=140, max_tokens=10, request_class="middle", arrival_s=1.0))
    assert run_step(one).preempted == (), "the batch request alone does not make room for it"
    one.submit(sequence(4, prompt=64, max_tokens=10, request_class=URGENT, arrival_s=2.0))
    step = run_step(one)
    assert [victim.sequence_id for victim in step.preempted] == [1]
    assert prefilled(step) == [4]


def test_equals_do_not_preempt_each_other_and_without_the_flag_nobody_does() -> None:
    one = full_of_batch()
    one.submit(sequence(9, request_class=BATCH, priority=-5, arrival_s=9.0))
    assert run_step(one).preempted == ()
    plain = full_of_batch(priority=False)
    plain.submit(sequence(9, request_class=URGENT, arrival_s=9.0))
    assert run_step(plain).preempted == ()


def test_the_refund_is_spent_and_the_budget_holds() -> None:
    one = full_of_batch(9, max_num_batched_tokens=90, num_blocks=256, chunk_tokens=128)
    one.submit(sequence(99, prompt=200, request_class=URGENT, arrival_s=99.0))
    step = run_step(one)
    assert len(step.decodes) == 8
    assert [work.num_tokens for work in step.prefills] == [82]


def test_a_victim_neither_returns_at_once_nor_changes_places_in_every_step() -> None:
    """Urgent requests come one after the other; between two preemptions of a request it was given tokens,
    and after three it is left alone."""
    one = full_of_batch(2)
    preempted: list[int] = []
    for number in range(100, 160):
        if number % 4 == 0:
            one.submit(sequence(number, max_tokens=2, request_class=URGENT, arrival_s=float(number)))
        step = run_step(one, now=float(number))
        preempted += [victim.sequence_id for victim in step.preempted]
    assert preempted, "nobody was preempted at all"
    for number in (1, 2):
        assert preempted.count(number) <= scheduler_limits.MAX_PREEMPTIONS


def test_preemption_for_a_class_is_paid_from_a_credit() -> None:
    credit = preemption.Credit(step_tokens=100)
    credit.spend(preemption.BURST_STEPS * 100)
    assert not credit.covers(1)
    assert credit.covers(0), "who has computed nothing loses nothing"
    credit.earn(100)
    assert credit.covers(50)
    credit.spend(50)
    assert not credit.covers(1), "in debt"


def test_what_urgent_requests_throw_away_is_bounded() -> None:
    one = scheduler(max_num_seqs=4, num_blocks=200)
    computed = lost = 0
    for number in range(600):
        if number % 2 == 0:
            one.submit(sequence(number, 40, 2, request_class=URGENT, arrival_s=float(number)))
        else:
            one.submit(sequence(number, 100, 30, request_class=BATCH, arrival_s=float(number)))
        before = {work.sequence_id: work.num_computed_tokens for work in one._roster.running}
        step = run_step(one, now=float(number))
        computed += step.num_tokens
        lost += sum(before[victim.sequence_id] for victim in step.preempted)
    burst = preemption.BURST_STEPS * 128 + 256
    assert 0 < lost <= preemption.RECOMPUTED_SHARE * computed + burst


def test_a_decode_without_a_block_takes_it_from_the_lowest_class() -> None:
    one = scheduler(num_blocks=6, max_model_len=96, max_num_seqs=3)
    one.submit(sequence(1, prompt=30, max_tokens=60, request_class=BATCH, arrival_s=0.0))
    one.submit(sequence(2, prompt=30, max_tokens=60, request_class=URGENT, arrival_s=1.0))
    for _ in range(60):
        step = run_step(one)
        if step.preempted:
            break
    assert [victim.sequence_id for victim in step.preempted] == [1], "though it came first"
    assert scheduling.prefilled(step) == []
