"""Names of classes and what they mean."""

from firsttoken_runtime.scheduler import classes
from firsttoken_runtime.scheduler.classes import RequestClass
from runtime.scheduling import BATCH, TABLE, URGENT, run_step, scheduler, sequence


def test_an_unknown_name_is_the_default_class() -> None:
    assert TABLE.find(URGENT).priority == 10
    assert TABLE.find("").name == TABLE.find("gone").name == BATCH
    assert classes.ClassTable((RequestClass("first", 3),)).find("gone").name == "first"
    assert classes.ONE_CLASS.find("any") == RequestClass()


def test_below_is_the_next_less_urgent_one() -> None:
    assert TABLE.below(TABLE.find(URGENT)).name == "middle"
    assert TABLE.below(TABLE.find(BATCH)).name == BATCH
    assert classes.ONE_CLASS.below(RequestClass()) == RequestClass()


def test_past_its_output_budget_a_request_goes_on_one_class_lower() -> None:
    table = classes.ClassTable((RequestClass("fast", 9, max_tokens=3), RequestClass("slow", 1, max_tokens=2)))
    for length_control, name in ((True, "slow"), (False, "fast")):
        one = scheduler(length_control=length_control)
        one.switch(one.limits, None, table)
        long = sequence(1, max_tokens=20, request_class="fast")
        one.submit(long)
        for _ in range(3):
            run_step(one)
        assert (long.num_output_tokens, long.class_in_force.name) == (3, "fast"), "within its budget"
        for _ in range(5):
            run_step(one)
        assert long.class_in_force.name == name
        one.switch(one.limits, None, table)
        assert long.class_in_force.name == name, "it stays lowered"
