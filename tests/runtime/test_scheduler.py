"""The scheduler's promises as properties: any load, any pool, any flags, aborts at any time."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence

LIMITS = scheduler_limits.Limits(
    max_model_len=256, max_num_seqs=8, max_num_batched_tokens=128, max_prefill_batch=4, chunk_tokens=64
)


def scheduler(*, limits: scheduler_limits.Limits = LIMITS, num_blocks: int = 64) -> scheduling.Scheduler:
    return scheduling.Scheduler(limits, blocks.Pool(num_blocks, 16))


def sequence(
    sequence_id: int,
    prompt: int = 10,
    max_tokens: int = 4,
    *,
    arrival_s: float = 0.0,
    stop_ids: frozenset[int] = frozenset(),
    min_tokens: int = 0,
) -> Sequence:
    sampling = core.SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens)
    return Sequence(sequence_id, [7] * prompt, sampling, arrival_s, stop_ids)


def tokens_of(step: ScheduledStep, token_id: int = 1) -> dict[int, int]:
    return {work.sequence.sequence_id: token_id for work in step.work if work.samples}


def run_step(one: scheduling.Scheduler) -> tuple[ScheduledStep, list[core.Token]]:
    running = set(one.running_ids())
    step = one.schedule(0.0)
    check_step(one, step)
    assert not step.preempted or one.running_ids() <= running, "admission in a step that preempted"
    tokens = one.commit(step, tokens_of(step), 0.0).tokens
    one.check_integrity()
    return step, tokens


def check_step(one: scheduling.Scheduler, step: ScheduledStep) -> None:
    assert step.num_tokens <= one.limits.step_budget_tokens
    assert len(step.prefills) <= one.limits.max_prefill_batch
    assert one.stats().running <= one.limits.max_num_seqs
    ids = [work.sequence.sequence_id for work in step.work]
    assert len(set(ids)) == len(ids), "one piece of work a sequence"
    assert not {s.sequence_id for s in step.preempted} & set(ids), "a victim was given tokens"
    for work in step.work:
        slots = len(work.sequence.block_table) * one.pool.block_size_tokens
        assert work.first_token + work.num_tokens <= slots, "no slot for a token"
    assert all(work.num_tokens == 1 for work in step.decodes)
    if one.limits.chunk_tokens is not None:
        assert all(work.num_tokens <= one.limits.chunk_tokens for work in step.prefills)
    else:
        assert all(work.samples for work in step.prefills), "a prompt was cut"


def drain(one: scheduling.Scheduler, at_most: int = 3000) -> list[core.Token]:
    finished = []
    for _ in range(at_most):
        if not one.has_work:
            break
        _, tokens = run_step(one)
        finished += [token for token in tokens if token.finish_reason]
    assert not one.has_work, "the queue does not drain"
    assert one.pool.num_free == one.pool.num_blocks
    return finished


def test_a_prompt_is_computed_in_chunks_and_then_decoded() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=150, max_tokens=3))
    shape = []
    while one.has_work:
        step, tokens = run_step(one)
        shape.append(([w.num_tokens for w in step.prefills], len(step.decodes), len(tokens)))
    assert shape == [([64], 0, 0), ([64], 0, 0), ([22], 0, 1), ([], 1, 1), ([], 1, 1)]


def test_decodes_come_before_prefills_and_both_share_a_step() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=10, max_tokens=9))
    run_step(one)
    one.submit(sequence(2, prompt=100, max_tokens=9, arrival_s=1.0))
    step, _ = run_step(one)
    assert [work.sequence.sequence_id for work in step.decodes] == [1]
    assert [(work.sequence.sequence_id, work.num_tokens) for work in step.prefills] == [(2, 64)]


def test_while_another_prompt_waits_one_gets_at_most_half_of_the_budget() -> None:
    one = scheduler(limits=replace(LIMITS, chunk_tokens=128))
    one.submit(sequence(1, prompt=200))
    one.submit(sequence(2, prompt=200, arrival_s=1.0))
    step, _ = run_step(one)
    assert [work.num_tokens for work in step.prefills] == [64, 64]


def test_blocks_are_taken_chunk_by_chunk_and_who_gets_no_tokens_has_none() -> None:
    one = scheduler()
    for number in range(3):
        one.submit(sequence(number, prompt=100, arrival_s=number))
    step, _ = run_step(one)
    assert [work.num_tokens for work in step.prefills] == [64, 64]
    assert (one.stats().running, one.stats().waiting, one.pool.num_used) == (2, 1, 8)


def test_first_come_first_served_even_if_submitted_late() -> None:
    one = scheduler(limits=replace(LIMITS, max_num_seqs=1))
    one.submit(sequence(1, arrival_s=5.0))
    one.submit(sequence(2, arrival_s=3.0))
    step, _ = run_step(one)
    assert [work.sequence.sequence_id for work in step.work] == [2]


def test_without_chunks_a_prompt_is_computed_in_one_step_beside_decodes() -> None:
    one = scheduler(limits=replace(LIMITS, chunk_tokens=None))
    one.submit(sequence(1, prompt=10, max_tokens=20))
    run_step(one)
    one.submit(sequence(2, prompt=255, max_tokens=1, arrival_s=1.0))
    step, tokens = run_step(one)
    assert len(step.decodes) == 1
    assert [work.num_tokens for work in step.prefills] == [255]
    assert len(tokens) == 2


def test_without_continuous_batching_nobody_joins_a_running_batch() -> None:
    one = scheduler(limits=replace(LIMITS, continuous_batching=False, chunk_tokens=None))
    one.submit(sequence(1, max_tokens=3))
    one.submit(sequence(2, max_tokens=2))
    run_step(one)
    one.submit(sequence(3, arrival_s=1.0))
    for _ in range(2):
        step, _ = run_step(one)
        assert 3 not in {work.sequence.sequence_id for work in step.work}
    step, _ = run_step(one)
    assert [work.sequence.sequence_id for work in step.work] == [3]


def test_admission_leaves_a_block_for_each_that_runs() -> None:
    one = scheduler(num_blocks=4, limits=replace(LIMITS, max_model_len=64))
    one.submit(sequence(1, prompt=12, max_tokens=30))
    run_step(one)
    one.submit(sequence(2, prompt=48, max_tokens=1, arrival_s=1.0))
    step, _ = run_step(one)
    assert one.pool.num_free == 3
    assert len(step.prefills) == 0, "3 blocks are free, 3 + 1 are needed"


@pytest.mark.parametrize("continuous_batching", [False, True])
def test_with_one_block_a_sequence_every_block_is_used(continuous_batching: bool) -> None:
    """Nobody who runs needs another one: a block kept free would halve the baseline's batch."""
    limits = replace(
        LIMITS,
        max_model_len=100,
        max_prefill_batch=8,
        continuous_batching=continuous_batching,
        chunk_tokens=None,
    )
    one = scheduling.Scheduler(limits, blocks.Pool(7, 100))
    for number in range(9):
        one.submit(sequence(number))
    run_step(one)
    assert one.running_ids() == set(range(7))
    assert len(drain(one)) == 9


def test_alone_a_sequence_may_fill_the_whole_pool() -> None:
    one = scheduler(num_blocks=4, limits=replace(LIMITS, max_model_len=64))
    one.submit(sequence(1, prompt=60, max_tokens=4))
    assert [token.finish_reason for token in drain(one)] == ["length"]


def test_the_latest_arrival_gives_way_keeps_its_output_and_comes_back() -> None:
    one = scheduler(num_blocks=5, limits=replace(LIMITS, max_model_len=80))
    first = sequence(1, prompt=30, max_tokens=40)
    second = sequence(2, prompt=14, max_tokens=30, arrival_s=1.0)
    one.submit(first)
    one.submit(second)
    preempting = None
    for _ in range(40):
        step, _ = run_step(one)
        if step.preempted:
            preempting = step
            break
    assert preempting is not None
    assert list(preempting.preempted) == [second]
    assert not preempting.prefills, "no admission in a step that preempted"
    output = second.num_output_tokens
    assert output > 0
    assert second.num_computed_tokens == 0
    drain(one)
    assert second.num_output_tokens == 30
    assert one.stats().preemptions_total == second.preemptions >= 1


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_nobody_is_preempted_more_often_than_the_bound(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A low bound makes it bite often; who has reached it must still never run out of blocks."""
    monkeypatch.setattr(scheduler_limits, "MAX_PREEMPTIONS", bound)
    most = 0
    for seed in range(9):
        draw = random.Random(seed)
        one = scheduler(num_blocks=16, limits=replace(LIMITS, max_model_len=128, max_num_seqs=32))
        everyone = [
            sequence(i, draw.randint(1, 4), draw.randint(60, 98), arrival_s=draw.random()) for i in range(24)
        ]
        for each in everyone:
            one.submit(each)
            if draw.random() < 0.7:
                run_step(one)
        drain(one)
        assert all(each.num_output_tokens == each.sampling.max_tokens for each in everyone), seed
        most = max(most, *(each.preemptions for each in everyone))
    assert most == bound, "above: the bound does not hold; below: it was never reached"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (sequence(1, prompt=0), "no tokens"),
        (sequence(1, prompt=256), "longest context of 256"),
        (sequence(1, max_tokens=-1), "max_tokens is -1"),
        (sequence(1, prompt=200, max_tokens=10), "all of it holds 160"),
    ],
)
def test_what_can_never_run_is_refused_at_once(one: Sequence, words: str) -> None:
    engine = scheduler(num_blocks=10)
    with pytest.raises(scheduling.NeverFits, match=words):
        engine.submit(one)
    assert not engine.has_work


def test_the_longest_context_ends_a_sequence() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=250, max_tokens=1000))
    (end,) = drain(one)
    assert end.finish_reason == "length"


def test_a_stop_id_ends_a_sequence_but_not_before_min_tokens() -> None:
    one = scheduler()
    early = sequence(1, max_tokens=9, stop_ids=frozenset({1}))
    late = sequence(2, max_tokens=9, stop_ids=frozenset({1}), min_tokens=3)
    one.submit(early)
    one.submit(late)
    assert {end.sequence_id: end.finish_reason for end in drain(one)} == {1: "stop", 2: "stop"}
    assert early.num_output_tokens == 1
    assert late.num_output_tokens == 3


def test_an_abort_between_schedule_and_commit_is_passed_over() -> None:
    one = scheduler()
    one.submit(sequence(1))
    step = one.schedule(0.0)
    one.abort(1)
    assert one.commit(step, tokens_of(step), 0.0).tokens == []
    one.check_integrity()
    assert one.pool.num_free == one.pool.num_blocks
    one.abort(1)
    one.abort(99)


def test_backlog_counts_prompt_tokens_not_computed_yet() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=100))
    one.submit(sequence(2, prompt=30, arrival_s=1.0))
    assert one.stats().backlog_tokens == 130
    run_step(one)
    assert one.stats().backlog_tokens == 130 - 64 - 30


def test_max_tokens_0_ends_when_the_prompt_is_computed() -> None:
    one = scheduler()
    one.submit(sequence(1, prompt=100, max_tokens=0))
    ended = []
    for _ in range(2):
        step = one.schedule(0.0)
        assert not any(work.samples for work in step.work)
        committed = one.commit(step, {}, 0.0)
        assert not committed.tokens
        ended.append(committed.ended)
    assert ended == [[], [1]]
    assert not one.is_open(1)
    assert one.pool.num_free == one.pool.num_blocks
    longest = sequence(2, prompt=256, max_tokens=0)
    one.submit(longest)
    with pytest.raises(scheduling.NeverFits):
        one.submit(sequence(3, prompt=257, max_tokens=0))


def test_a_held_sequence_waits_in_its_place_until_it_is_released() -> None:
    one = scheduler(limits=replace(LIMITS, max_num_seqs=1))
    one.submit(sequence(1))
    one.hold(1)
    assert one.is_open(1)
    assert not one.has_work, "nothing to compute"
    assert one.stats().waiting == 1
    one.submit(sequence(2, arrival_s=1.0))
    one.submit(sequence(3, arrival_s=2.0))
    step, _ = run_step(one)
    assert [work.sequence.sequence_id for work in step.work] == [2]
    one.hold(2)
    one.hold(99)
    assert one.running_ids() == {2}, "only who waits is held"
    one.release(1)
    one.release(1)
    one.abort(2)
    step, _ = run_step(one)
    assert [work.sequence.sequence_id for work in step.work] == [1]
    one.hold(3)
    one.abort(3)
    drain(one)


def test_what_one_prompt_leaves_of_the_budget_goes_to_the_other() -> None:
    one = scheduler(limits=replace(LIMITS, chunk_tokens=128))
    one.submit(sequence(1, prompt=200))
    one.submit(sequence(2, prompt=20, arrival_s=1.0))
    step, _ = run_step(one)
    assert [work.num_tokens for work in step.prefills] == [108, 20]


any_limits = st.builds(
    scheduler_limits.Limits,
    max_model_len=st.sampled_from([40, 100, 160]),
    max_num_seqs=st.integers(1, 9),
    max_num_batched_tokens=st.sampled_from([9, 64, 100, 512]),
    max_prefill_batch=st.integers(1, 4),
    continuous_batching=st.booleans(),
    chunk_tokens=st.sampled_from([None, 64, 512]),
)
any_request = st.tuples(st.integers(1, 90), st.integers(1, 60))
any_event = st.one_of(
    st.just("step"),
    st.integers(0, 40).map(lambda n: ("abort", n)),
    st.sampled_from([16, 160]).map(lambda n: ("pool", n)),
    st.tuples(st.booleans(), st.sampled_from([None, 64])).map(lambda flags: ("flags", *flags)),
    any_request.map(lambda request: ("submit", *request)),
)


@settings(max_examples=300, deadline=None)
@given(limits=any_limits, num_blocks=st.integers(10, 30), events=st.lists(any_event, max_size=60))
def test_any_load_with_aborts_and_switches_drains_and_leaks_nothing(
    limits: scheduler_limits.Limits, num_blocks: int, events: list[object]
) -> None:
    one = scheduler(limits=limits, num_blocks=num_blocks)
    accepted: dict[int, Sequence] = {}
    aborted: set[int] = set()
    for number, event in enumerate(events):
        match event:
            case "step" if one.has_work:
                run_step(one)
            case ("abort", int(sequence_id)):
                one.abort(sequence_id)
                aborted.add(sequence_id)
            case ("flags", bool(continuous), chunk_tokens):
                one.switch(
                    replace(one.limits, continuous_batching=continuous, chunk_tokens=chunk_tokens)  # type: ignore[arg-type]
                )
            case ("pool", int(block_size)):
                one.switch(one.limits, blocks.Pool(num_blocks * 16 // block_size, block_size))
            case ("submit", int(prompt), int(max_tokens)):
                new = sequence(number, prompt, max_tokens, arrival_s=number % 7)
                try:
                    one.submit(new)
                except scheduling.NeverFits:
                    continue
                accepted[number] = new
                aborted.discard(number)
        one.check_integrity()
    drain(one)
    for sequence_id, each in accepted.items():
        if sequence_id not in aborted:
            longest = min(each.num_prompt_tokens + each.sampling.max_tokens, limits.max_model_len)
            assert each.num_tokens == longest
        assert each.preemptions <= scheduler_limits.MAX_PREEMPTIONS


def test_a_step_of_256_sequences_is_cheap() -> None:
    """Few enough operations that pure Python is no bottleneck; the bench measures the time."""
    many = replace(LIMITS, max_num_seqs=256, max_num_batched_tokens=4096, max_prefill_batch=256)
    one = scheduler(limits=many, num_blocks=1000)
    for i in range(256):
        one.submit(sequence(i, prompt=10, max_tokens=5))
    step, _ = run_step(one)
    assert len(step.prefills) == 256
    step, _ = run_step(one)
    assert len(step.decodes) == 256
