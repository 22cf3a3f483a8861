"""Any load of any classes, any pool, aborts, holds and switches at any time: all end, nothing leaks."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import classes
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import scheduler as scheduling_module
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime.scheduling import TABLE, run_step, sequence

OTHER_TABLE = classes.ClassTable(
    (classes.RequestClass("batch", 3, max_tokens=4), classes.RequestClass("new", 1))
)

any_limits = st.builds(
    scheduler_limits.Limits,
    max_model_len=st.sampled_from([40, 100, 160]),
    max_num_seqs=st.integers(1, 9),
    max_num_batched_tokens=st.sampled_from([9, 64, 100, 512]),
    max_prefill_batch=st.integers(1, 4),
    continuous_batching=st.booleans(),
    chunk_tokens=st.sampled_from([None, 64, 512]),
    priority=st.sampled_from([True, True, True, False]),
    length_control=st.booleans(),
    prefill_only_when_idle=st.booleans(),
    tpot_p95_s=st.sampled_from([None, 0.01, 2.0]),
)
any_request = st.tuples(
    st.integers(1, 90),
    st.integers(0, 60),
    st.sampled_from(["urgent", "middle", "batch", ""]),
    st.integers(-2, 2),
)
any_event = st.one_of(
    st.just("step"),
    st.integers(0, 40).map(lambda n: ("abort", n)),
    st.integers(0, 40).map(lambda n: ("hold", n)),
    st.integers(0, 40).map(lambda n: ("release", n)),
    st.sampled_from([16, 160]).map(lambda n: ("pool", n)),
    st.sampled_from([TABLE, OTHER_TABLE]).map(lambda table: ("classes", table)),
    st.tuples(st.booleans(), st.sampled_from([None, 64])).map(lambda flags: ("flags", *flags)),
    any_request.map(lambda request: ("submit", *request)),
    any_request.map(lambda request: ("submit", *request)),
)


def apply(one: scheduling_module.Scheduler, event: Any, number: int, num_blocks: int) -> Sequence | None:
    match event:
        case "step" if one.has_work:
            run_step(one, now=float(number))
        case ("abort", sequence_id):
            one.abort(sequence_id)
        case ("hold", sequence_id):
            one.hold(sequence_id)
        case ("release", sequence_id):
            one.release(sequence_id)
        case ("pool", block_size):
            one.switch(one.limits, blocks.Pool(num_blocks * 16 // block_size, block_size))
        case ("classes", table):
            one.switch(one.limits, None, table)
        case ("flags", priority, chunk_tokens):
            one.switch(replace(one.limits, priority=priority, chunk_tokens=chunk_tokens))
        case ("submit", prompt, max_tokens, name, priority):
            new = sequence(
                number,
                prompt,
                max_tokens,
                arrival_s=float(number % 7),
                request_class=name,
                priority=priority,
            )
            try:
                one.submit(new)
            except scheduling_module.NeverFits:
                return None
            return new
    return None


@settings(max_examples=250, deadline=None)
@given(limits=any_limits, num_blocks=st.integers(10, 30), events=st.lists(any_event, max_size=60))
def test_all_end_and_nothing_leaks(
    limits: scheduler_limits.Limits, num_blocks: int, events: list[object]
) -> None:
    one = scheduling_module.Scheduler(limits, blocks.Pool(num_blocks, 16), TABLE)
    accepted: list[Sequence] = []
    aborted: set[int] = set()
    for number, event in enumerate(events):
        if (new := apply(one, event, number, num_blocks)) is not None:
            accepted.append(new)
        elif isinstance(event, tuple) and event[0] == "abort":
            aborted.add(event[1])
        one.check_integrity()
    for each in accepted:
        one.release(each.sequence_id)
    now = float(len(events))
    while one.has_work:
        run_step(one, now)
        now += 1.0
        assert now < 4000, "the queue does not drain"
    assert one.pool.num_free == one.pool.num_blocks
    assert one.stats().backlog_tokens == one.stats().live_slots == one.stats().waiting == 0
    for each in accepted:
        longest = min(each.num_prompt_tokens + each.sampling.max_tokens, limits.max_model_len)
        assert each.num_tokens == longest or each.sequence_id in aborted
        assert each.preemptions <= scheduler_limits.MAX_PREEMPTIONS


def test_many_equal_prompts_at_once_leave_the_pool_free() -> None:
    """Preempted ones come back with their output and count nothing twice; the pool is free afterwards."""
    limits = scheduler_limits.Limits(100, 8, 64, 4, priority=True)
    one = scheduling_module.Scheduler(limits, blocks.Pool(9, 16), TABLE)
    everyone = [sequence(number, prompt=32, max_tokens=60) for number in range(12)]
    for each in everyone:
        one.submit(each)
    now = 0.0
    while one.has_work:
        run_step(one, now)
        now += 1
    assert one.stats().preemptions_total > 0
    assert [each.num_output_tokens for each in everyone] == [60] * 12


def test_what_never_fits_does_not_block_the_others() -> None:
    one = scheduling_module.Scheduler(
        scheduler_limits.Limits(1000, 8, 64, 4, priority=True), blocks.Pool(9, 16), TABLE
    )
    one.submit(sequence(1, request_class="batch"))
    with pytest.raises(scheduling_module.NeverFits, match="all of it holds 144"):
        one.submit(sequence(2, prompt=500, request_class="urgent"))
    run_step(one)
    assert one.running_ids() == {1}
