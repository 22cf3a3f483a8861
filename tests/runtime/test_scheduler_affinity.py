"""Prompts whose prefix is cached come first, and nobody waits longer than allowed for that."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.scheduler import affinity, turns
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime.scheduling import BATCH, URGENT, caching_scheduler, drain, prefilled, run_step, sequence


def with_cached(max_wait_s: float | None, **changes: object) -> scheduling.Scheduler:
    """The tokens 0..127 are cached; one slot."""
    given = {"max_num_seqs": 1, "priority": False} | changes
    one = caching_scheduler(prefix_affinity_max_wait_s=max_wait_s, **given)  # type: ignore[arg-type]
    one.submit(sequence(1, range(140), 1))
    drain(one)
    return one


def test_who_has_its_prefix_in_the_cache_is_first() -> None:
    for max_wait_s, first in ((None, 2), (5.0, 3)):
        one = with_cached(max_wait_s)
        one.submit(sequence(2, range(500, 640), 1, arrival_s=1.0))
        one.submit(sequence(3, range(140), 1, arrival_s=2.0))
        assert prefilled(run_step(one, now=3.0)) == [first]


def test_one_is_passed_over_for_no_longer_than_the_setting() -> None:
    one = with_cached(5.0)
    one.submit(sequence(2, range(500, 540), 1, arrival_s=0.0))
    now, served = 10.0, []
    for number in range(10, 30):
        one.submit(sequence(number, range(140), 1, arrival_s=now))
        served += prefilled(run_step(one, now))
        now += 1.0
    assert served.index(2) == 5, "passed over from 10 s to 15 s"


def test_classes_and_integer_priorities_are_not_mixed() -> None:
    one = with_cached(5.0, priority=True)
    one.submit(sequence(2, range(500, 640), 1, request_class=URGENT))
    one.submit(sequence(3, range(500, 640), 1, request_class=BATCH, priority=-1))
    one.submit(sequence(4, range(140), 1, request_class=BATCH))
    assert [prefilled(run_step(one))[0] for _ in range(3)] == [2, 2, 2]
    assert prefilled(run_step(one)) == [3]


def test_it_is_judged_by_the_declared_prefix_or_else_by_half_of_the_prompt() -> None:
    assert affinity.index(sequence(1, 100, shared=50), 16) == 2
    assert affinity.index(sequence(1, 100), 16) == 2
    assert affinity.index(sequence(1, 31), 16) is None
    assert affinity.index(sequence(1, 40, shared=500), 16) == 1
    assert affinity.index(sequence(1, 100, prompt_logprobs=0), 16) is None


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([None, 0.0, 5.0, 8.0]), st.integers(0, 2)), max_size=12)
)
def test_nobody_passes_one_that_is_due(line: list[tuple[bool, float | None, int]]) -> None:
    everyone: list[Sequence] = []
    for number, (_, since_s, urgency) in enumerate(line):
        each = sequence(number)
        each.rank = (urgency, 1, 0, 0.0, 0.0, number)
        each.passed_over_since_s = since_s
        everyone.append(each)
    everyone.sort(key=lambda each: each.rank)
    arranged = affinity.arrange(everyone, lambda each: line[each.sequence_id][0], 5.0, now=10.0)
    assert sorted(arranged, key=lambda each: each.rank) == everyone
    place = {each.sequence_id: index for index, each in enumerate(arranged)}
    for index, each in enumerate(everyone):
        is_due = each.passed_over_since_s is not None and 10.0 - each.passed_over_since_s >= 5.0
        for behind in everyone[index + 1 :]:
            if place[behind.sequence_id] < place[each.sequence_id]:
                assert not is_due
                assert behind.rank[:3] == each.rank[:3]
                assert line[behind.sequence_id][0]
                assert not line[each.sequence_id][0]


def test_one_turn_in_eight_is_still_for_who_waits_longest() -> None:
    """With a setting that lets prefixes pass for ever, as far as affinity goes."""
    one = with_cached(1e9, priority=True, max_num_seqs=2, num_blocks=100)
    one.submit(sequence(2, range(500, 540), 1, request_class=BATCH, arrival_s=0.0))
    now, steps = turns.OVERDUE_S, 0
    while one.is_open(2):
        steps += 1
        one.submit(sequence(100 + steps, range(140), 1, request_class=BATCH, arrival_s=now))
        one.submit(sequence(1000 + steps, range(140), 1, request_class=BATCH, arrival_s=now))
        run_step(one, now)
        now += 0.01
        assert steps <= turns.EVERY
