"""Nobody starves, whatever others send."""

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.scheduler import turns
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime.scheduling import BATCH, URGENT, prefilled, run_step, scheduler, sequence

any_low_request = st.tuples(
    st.integers(1, 200), st.integers(1, 20), st.sampled_from([BATCH, "middle"]), st.integers(-3, 3)
)


@settings(max_examples=30, deadline=None)
@given(lows=st.lists(any_low_request, min_size=1, max_size=6), urgent_prompt=st.integers(20, 250))
def test_the_bound_holds_against_an_endless_stream_of_urgent_prompts(
    lows: list[tuple[int, int, str, int]], urgent_prompt: int
) -> None:
    """Memory and slots abound, the budget never does: urgent prompts wait in every step."""
    one = scheduler(num_blocks=70, block_size=256, max_num_seqs=64)
    waiting: list[Sequence] = []
    for number, (prompt, max_tokens, name, priority) in enumerate(lows):
        low = sequence(number, prompt, max_tokens, request_class=name, priority=priority)
        waiting.append(low)
        one.submit(low)
    chunks = 4  # of 64 tokens, at most 200 in all
    now, steps, urgent = turns.OVERDUE_S, 0, 1000
    first_step: dict[int, int] = {}
    while len(first_step) < len(waiting):
        while one.stats().waiting_by_class[URGENT] < 5:
            urgent += 1
            one.submit(sequence(urgent, urgent_prompt, 1, request_class=URGENT, arrival_s=now))
        for sequence_id in prefilled(run_step(one, now)):
            first_step.setdefault(sequence_id, steps)
        first_step = {number: step for number, step in first_step.items() if number < 1000}
        steps += 1
        now += 0.01  # the urgent ones are never overdue themselves
        assert steps < 1000
    for k, low in enumerate(waiting):
        assert first_step[low.sequence_id] < turns.EVERY * (k * chunks + 1)


@settings(max_examples=40, deadline=None)
@given(lows=st.lists(any_low_request, min_size=1, max_size=5), num_blocks=st.integers(16, 24))
def test_a_lower_class_ends_while_urgent_requests_fill_a_tiny_pool(
    lows: list[tuple[int, int, str, int]], num_blocks: int
) -> None:
    one = scheduler(num_blocks=num_blocks, max_num_seqs=3)
    waiting = []
    for number, (prompt, max_tokens, name, priority) in enumerate(lows):
        low = sequence(number, prompt, max_tokens, request_class=name, priority=priority)
        waiting.append(low)
        one.submit(low)
    steps = 0
    while any(one.is_open(low.sequence_id) for low in waiting):
        while one.stats().waiting_by_class[URGENT] < 3:
            steps += 1
            number = 1000 + steps
            one.submit(sequence(number, 50, 5, request_class=URGENT, arrival_s=float(steps)))
        run_step(one, now=float(steps))
        steps += 1
        assert steps < 4000, "a lower class starves"
    assert all(low.num_output_tokens == low.sampling.max_tokens for low in waiting)


def test_a_turn_comes_after_the_others_and_only_for_who_is_overdue() -> None:
    one = turns.Turns()
    for _ in range(turns.EVERY - 1):
        assert not one.is_due()
        one.note(has_prefills=True, is_served=False)
    one.note(has_prefills=False, is_served=False)
    assert one.is_due()
    one.note(has_prefills=True, is_served=True)
    assert not one.is_due()
    early, late = sequence(1, arrival_s=5.0), sequence(2, arrival_s=6.0)
    assert turns.overdue([late, early], 5.0 + turns.OVERDUE_S) is early
    assert turns.overdue([late, early], 4.9 + turns.OVERDUE_S) is None


def test_with_low_prefill_priority_prompts_wait_for_decodes_but_not_for_ever() -> None:
    for priority in (True, False):
        one = scheduler(prefill_only_when_idle=True, priority=priority)
        one.submit(sequence(1, max_tokens=200))
        run_step(one)
        one.submit(sequence(2, prompt=150, max_tokens=1, arrival_s=1.0))
        one.submit(sequence(3, prompt=10, max_tokens=1, arrival_s=2.0))
        shapes = [prefilled(run_step(one, now=1.0 + second)) for second in range(16)]
        assert shapes[: int(turns.OVERDUE_S)] == [[]] * int(turns.OVERDUE_S)
        assert shapes[int(turns.OVERDUE_S) :][:4] == [[2], [2], [2], [3]], (
            "a chunk a step, one after the other"
        )
