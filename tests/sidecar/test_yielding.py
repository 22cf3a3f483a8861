"""Urgent classes lose a few requests to promises, and more only where they are overloaded themselves."""

from firsttoken_sidecar.yielding import EARNED_PER_REQUEST, MOST, Yielding


def used(one: Yielding, request_class: str) -> int:
    """How often in a row it yields."""
    count = 0
    while one.may_yield(request_class):
        one.yielded(request_class)
        count += 1
    return count


def test_the_beginning_of_a_surge_may_use_all_at_once() -> None:
    one = Yielding()
    assert used(one, "chat") == MOST
    assert not one.may_yield("chat")
    assert one.may_yield("other")


def test_of_a_class_that_is_served_a_few_in_a_hundred_yield() -> None:
    one = Yielding()
    lost = 0
    for _ in range(2000):
        one.asked("chat")
        if one.may_yield("chat"):
            one.yielded("chat")
            lost += 1
    assert EARNED_PER_REQUEST * 2000 <= lost <= EARNED_PER_REQUEST * 2000 + MOST


def test_of_a_class_that_is_overloaded_as_many_as_half_of_what_it_loses_anyway() -> None:
    one = Yielding()
    used(one, "chat")
    for _ in range(10):
        one.overloaded("chat")
    assert used(one, "chat") == 5


def test_it_does_not_pile_up() -> None:
    one = Yielding()
    for _ in range(10_000):
        one.asked("chat")
        one.overloaded("chat")
    assert used(one, "chat") == MOST
