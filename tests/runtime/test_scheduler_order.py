"""Who comes first in the line of prompts."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.scheduler import classes, lengths, order, speed
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime import scheduling
from runtime.scheduling import BATCH, TABLE, URGENT, run_step, scheduler, sequence


def ranked(*sequences: Sequence, medians: lengths.OutputLengths | None = None) -> list[int]:
    by_class = order.Order(by_class=True, table=TABLE)
    for one in sequences:
        by_class.classify(one)
        one.rank = by_class.rank(one, speed.Speed(), medians or lengths.OutputLengths())
    return [one.sequence_id for one in sorted(sequences, key=lambda one: one.rank)]


def test_class_then_priority_then_expected_work_then_arrival() -> None:
    assert ranked(
        sequence(1, arrival_s=0.0),
        sequence(2, arrival_s=0.1),
        sequence(3, prompt=5000, arrival_s=0.0),
        sequence(4, expected=2, arrival_s=0.02),
        sequence(5, priority=-1, prompt=5000, arrival_s=9.0),
        sequence(6, request_class=URGENT, priority=3, prompt=5000, arrival_s=9.0),
        sequence(7, request_class="middle", arrival_s=9.0),
        sequence(8, request_class="no such class"),
    ) == [6, 7, 5, 4, 1, 8, 2, 3]


def test_what_is_expected_is_asked_for_or_usual_in_its_class() -> None:
    medians = lengths.OutputLengths()
    for length in (3, 400, 500):
        medians.add(URGENT, length, length)
    by_class = order.Order(by_class=True, table=TABLE)

    def expected(**given: object) -> float:
        one = sequence(1, max_tokens=1000, **given)  # type: ignore[arg-type]
        by_class.classify(one)
        return order.expected_tokens(one, medians)

    assert expected(request_class=URGENT) == 400
    assert expected(request_class=URGENT, expected=7) == 7
    assert expected(request_class=URGENT, expected=7000) == 1000
    assert expected(request_class=BATCH) == order.DEFAULT_OUTPUT_TOKENS


def test_a_preempted_one_is_first_within_its_class_only() -> None:
    returning = sequence(1, prompt=5000, priority=5, arrival_s=7.0)
    returning.is_returning = True
    assert ranked(returning, sequence(2), sequence(3, request_class=URGENT, arrival_s=9.0)) == [3, 1, 2]


@given(
    prompts=st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)),
    outputs=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    later_s=st.floats(0, 1000),
)
def test_nobody_is_overtaken_by_who_arrives_later_than_the_head_start(
    prompts: tuple[int, int], outputs: tuple[int, int], later_s: float
) -> None:
    early = sequence(1, prompts[0], 5000, arrival_s=50.0, expected=outputs[0])
    late = sequence(2, prompts[1], 5000, arrival_s=50.0 + later_s, expected=outputs[1])
    if ranked(early, late) == [2, 1]:
        assert later_s <= order.MAX_HEAD_START_S


def test_without_the_flag_it_is_first_come_first_served() -> None:
    one = scheduler(priority=False, max_num_seqs=1)
    one.submit(sequence(1, prompt=200, arrival_s=1.0))
    one.submit(sequence(2, prompt=5, arrival_s=2.0, priority=-9, request_class=URGENT))
    assert scheduling.prefilled(run_step(one)) == [1]


def test_short_answers_come_first() -> None:
    one = scheduler(max_num_seqs=1)
    one.submit(sequence(1, max_tokens=200, expected=200, arrival_s=0.0))
    one.submit(sequence(2, max_tokens=200, expected=3, arrival_s=0.1))
    assert scheduling.prefilled(run_step(one)) == [2]


def test_classes_change_while_requests_wait_and_run() -> None:
    one = scheduler(max_num_seqs=1)
    one.submit(sequence(1, max_tokens=50, request_class="middle"))
    run_step(one)
    for number, name in ((2, URGENT), (3, BATCH)):
        one.submit(sequence(number, request_class=name))
    one.switch(
        one.limits,
        None,
        classes.ClassTable((classes.RequestClass(URGENT, 0), classes.RequestClass(BATCH, 7))),
    )
    one.check_integrity()
    step = run_step(one)
    assert [victim.sequence_id for victim in step.preempted] == [1], "batch is the urgent one now"
    assert scheduling.prefilled(step) == [3]
    one.switch(replace(one.limits, priority=False))
    one.check_integrity()
    assert one.classes.find(BATCH).priority == 7, "classes stay when none are given"
