"""Who is evicted next: leaves first, then probation, then who was not used for longest."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache.slru import Slru


def evictable(*block_ids: int, most: int = 9) -> Slru:
    one = Slru()
    one.set_max_protected(most)
    for block_id in block_ids:
        one.add(block_id, is_protected=False, is_inner=False)
    return one


def drained(one: Slru) -> list[int]:
    order = []
    while (block_id := one.next()) is not None:
        one.remove(block_id)
        order.append(block_id)
    return order


def test_the_least_recently_used_goes_first() -> None:
    one = evictable(3, 1, 2)
    one.remove(3)
    one.add(3, is_protected=False, is_inner=False)
    assert drained(one) == [1, 2, 3]


def test_protected_ones_go_after_probation() -> None:
    one = evictable()
    one.add(1, is_protected=True, is_inner=False)
    one.add(2, is_protected=False, is_inner=False)
    assert drained(one) == [2, 1]


def test_leaves_go_before_everything_that_others_come_after() -> None:
    one = evictable()
    one.add(1, is_protected=False, is_inner=True)
    one.add(2, is_protected=True, is_inner=False)
    assert drained(one) == [2, 1]


def test_a_block_that_becomes_a_leaf_keeps_its_time() -> None:
    one = evictable()
    one.add(1, is_protected=False, is_inner=True)
    one.add(2, is_protected=False, is_inner=False)
    one.set_inner(1, False)
    assert one.next() == 1
    one.set_inner(1, True)
    assert one.next() == 2


def test_unknown_blocks_are_not_made_evictable() -> None:
    one = evictable()
    one.set_inner(4, False)
    assert one.next() is None
    assert len(one) == 0


def test_what_is_over_the_protected_part_gets_another_round_in_probation() -> None:
    one = evictable(5, most=2)
    for block_id in (1, 2, 3):
        one.add(block_id, is_protected=True, is_inner=False)
    assert [one.is_protected(i) for i in (1, 2, 3)] == [False, True, True]
    assert drained(one) == [5, 1, 2, 3]


def test_a_smaller_protected_part_is_in_force_at_once() -> None:
    one = evictable()
    for block_id in (1, 2, 3):
        one.add(block_id, is_protected=True, is_inner=False)
    one.set_max_protected(0)
    assert one.num_protected == 0
    one.check_integrity(dict.fromkeys((1, 2, 3), False))


def test_a_block_used_for_ever_leaves_nothing_behind() -> None:
    one = evictable(1, 2)
    for _ in range(10_000):
        one.remove(1)
        one.add(1, is_protected=True, is_inner=False)
    one.check_integrity({1: False, 2: False})  # bounds what is left of old entries
    assert one.next() == 2


@given(st.lists(st.tuples(st.sampled_from("apir"), st.integers(0, 30)), max_size=300), st.integers(0, 12))
def test_integrity_holds_in_any_order(calls: list[tuple[str, int]], most: int) -> None:
    one = evictable(most=most)
    inner: dict[int, bool] = {}
    for call, block_id in calls:
        if call == "i":
            one.set_inner(block_id, not inner.get(block_id, False))
            if block_id in inner:
                inner[block_id] = not inner[block_id]
        elif call == "r":
            if block_id in inner:
                one.remove(block_id)
                del inner[block_id]
        elif block_id not in inner:
            one.add(block_id, is_protected=call == "p", is_inner=False)
            inner[block_id] = False
        one.check_integrity(inner)
        assert (one.next() is None) == (not inner)
