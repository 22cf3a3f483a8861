"""What is kept for later requests: how much, for how long, and what goes first."""

import sys
from types import FrameType
from typing import Any

import pytest

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.cache.formats import Counts, Format
from runtime.cached_prompts import SIZE, admit, found, path, pool, prompt, publish, serve


def kept(one: blocks.Pool, token_ids: list[int], num_full: int = 1000) -> int:
    return len(found(one, token_ids, num_full))


def test_a_prompt_is_found_by_the_next_one() -> None:
    one = pool()
    assert serve(one, prompt(7, 3)) == []
    assert len(serve(one, prompt(7, 3))) == 3
    assert len(serve(one, prompt(8, 3, shared=2))) == 0
    assert len(serve(one, prompt(9, 3, shared=2))) == 2


def test_a_block_is_not_found_before_it_is_published() -> None:
    one = pool()
    table = admit(one, prompt(7, 3))
    assert kept(one, prompt(7, 3)) == 0
    publish(one, prompt(7, 3), table)
    assert kept(one, prompt(7, 3)) == 3
    assert [one.is_writable(block_id) for block_id in table] == [False, False, False, True]


def test_without_caching_nothing_is_found_and_all_blocks_come_back() -> None:
    one = blocks.Pool(8, SIZE)
    table = admit(one, prompt(7, 3))
    assert publish(one, prompt(7, 3), table) == 0
    one.release(table)
    assert (one.num_free, one.num_cached) == (8, 0)
    assert serve(one, prompt(7, 3)) == []


def test_equal_prompts_computed_at_once_have_one_findable_copy() -> None:
    one = pool(20)
    tables = [admit(one, prompt(7, 3)) for _ in range(5)]
    assert [publish(one, prompt(7, 3), table) for table in tables] == [3, 0, 0, 0, 0]
    one.check_integrity(block_id for table in tables for block_id in table)
    for table in tables:
        one.release(table)
    one.check_integrity()
    assert (one.num_free, one.num_cached) == (17, 3)


def test_a_preempted_sequence_finds_its_blocks_unless_they_were_taken() -> None:
    one = pool(5)
    table = admit(one, prompt(7, 4))
    publish(one, prompt(7, 4), table)
    one.release(table)
    assert one.available == Counts(5, 0)
    one.release(one.allocate(3))  # the free one, and two that were evicted
    table = admit(one, prompt(7, 4))
    assert one.num_used == 5
    one.check_integrity(table)


def test_sharing_is_counted() -> None:
    one = pool()
    serve(one, prompt(7, 3))
    tables = [admit(one, prompt(7, 3)) for _ in range(3)]
    assert one.num_extra_holds == 6
    assert one.num_used == 6
    for table in tables:
        one.release(table)
    assert one.num_extra_holds == 0


def test_no_more_than_its_share_is_kept() -> None:
    one = pool(20, most=0.25)
    serve(one, prompt(7, 9))
    assert one.num_cached == 5
    assert kept(one, prompt(7, 9)) == 5, "the beginning is kept"
    one.cache_share = 0.1
    assert one.num_cached == 2
    one.cache_share = 1.0
    assert one.cache_share == 0.25


def test_the_share_is_of_quantized_blocks_where_there_are_any() -> None:
    one = pool(8, 12, most=0.5)
    serve(one, prompt(7, 15), num_full=6)
    assert one.cached == Counts(6, 6)
    one.cache_share = 0.0
    assert one.cached == Counts(6, 0)
    assert sum(one.pin(key) for key in path(prompt(7, 6))) == 4
    one.set_caching(None)
    assert one.num_free == 20


def test_the_end_of_the_oldest_goes_first() -> None:
    one = pool(10)
    serve(one, prompt(7, 4))
    serve(one, prompt(8, 4))
    one.release(one.allocate(4))
    assert (kept(one, prompt(7, 4)), kept(one, prompt(8, 4))) == (2, 4)


def test_what_branches_share_stays_for_the_last_of_them() -> None:
    one = pool(12)
    for number in (7, 8, 9):
        serve(one, prompt(number, 4, shared=2))
    one.release(one.allocate(8))  # of 8 cached ones, 4 go: those of the two older branches
    assert [kept(one, prompt(number, 4, shared=2)) for number in (7, 8, 9)] == [2, 2, 4]


def test_a_prompt_that_was_found_twice_outlives_a_flood_of_others() -> None:
    one = pool(20)
    for _ in range(3):
        serve(one, prompt(7, 4))
    for number in range(100, 140):
        serve(one, prompt(number, 4))
    assert kept(one, prompt(7, 4)) == 4


def test_a_prompt_that_was_found_once_does_not() -> None:
    one = pool(20)
    for _ in range(2):
        serve(one, prompt(7, 4))
    for number in range(100, 140):
        serve(one, prompt(number, 4))
    assert kept(one, prompt(7, 4)) == 0


def test_protected_prompts_leave_room_for_new_ones() -> None:
    one = pool(20, protected=0.5)
    for number in range(7, 12):
        for _ in range(3):
            serve(one, prompt(number, 4))
    serve(one, prompt(100, 4))
    assert kept(one, prompt(100, 4)) == 4
    assert kept(one, prompt(11, 4)) == 4
    assert kept(one, prompt(7, 4)) == 0


def test_an_evicted_block_is_told_before_it_is_used_again() -> None:
    one = pool(4)
    told: list[blocks.Evicted] = []
    one.on_evict = told.append
    serve(one, prompt(7, 3))
    serve(one, prompt(7, 3))
    taken = one.allocate(3)
    keys = path(prompt(7, 3))
    assert [(each.key, each.parent_key) for each in told] == [(keys[2], keys[1]), (keys[1], keys[0])]
    assert {(each.token_ids, each.fmt, each.hits) for each in told} == {((7,) * SIZE, Format.FULL, 1)}
    assert {each.block_id for each in told} < set(taken)
    assert one.evictions_total == 2


def test_what_continues_a_prompt_that_was_found_is_told_apart() -> None:
    one = pool()
    serve(one, prompt(7, 2, shared=2))
    serve(one, prompt(8, 5, shared=2))
    serve(one, prompt(9, 3))
    continued = {each.key: each.extends_hit for each in one.findable()}
    assert [continued[key] for key in path(prompt(8, 5, shared=2))] == [False, False, True, True, True]
    assert [continued[key] for key in path(prompt(9, 3))] == [False] * 3
    one.forget_all()
    serve(one, prompt(8, 5, shared=2))
    assert not any(each.extends_hit for each in one.findable())


def test_all_that_is_findable_is_listed_ends_first() -> None:
    one = pool(20)
    for token_ids in (prompt(7, 3), prompt(8, 3, shared=1), prompt(9, 4, shared=1)):
        serve(one, token_ids)
    one.release(one.allocate(one.num_free + 3))
    serve(one, prompt(7, 3))  # its beginning may be published after what follows it
    listed = list(one.findable())
    assert len(listed) == one.num_findable
    seen: set[bytes] = set()
    for each in listed:
        assert each.parent_key not in seen, "a beginning came first"
        seen.add(each.key)
        assert one.find(each.key, each.token_ids) == each.block_id
    assert one.evictions_total == 3


def test_a_block_under_those_that_are_held_goes_last() -> None:
    """Two computed one prompt at once; the one whose beginning is findable has left."""
    one = pool(12)
    first, second = admit(one, prompt(7, 2)), admit(one, prompt(7, 3))
    publish(one, prompt(7, 2), first)
    publish(one, prompt(7, 3), second)
    one.release(first)
    serve(one, prompt(8, 3), held=second)
    others = one.allocate(one.num_free + 3)
    assert (kept(one, prompt(7, 3)), kept(one, prompt(8, 3))) == (3, 0), "the younger ones, but leaves"
    others += one.allocate(1)
    assert kept(one, prompt(7, 3)) == 1
    others += one.allocate(1)
    assert kept(one, prompt(7, 3)) == 0
    one.check_integrity(second + others)
    # What came after them is found again as soon as they are.
    one.release(others)
    serve(one, prompt(7, 2), held=second)
    assert kept(one, prompt(7, 3)) == 3


def test_blocks_of_one_format_go_though_the_other_comes_after_them() -> None:
    one = pool(3, 6)
    serve(one, prompt(7, 5), num_full=3)
    assert one.available == Counts(3, 6)
    table = one.allocate(2)
    one.check_integrity(table)
    assert kept(one, prompt(7, 5), num_full=3) == 1
    one.release(table)
    assert len(serve(one, prompt(7, 5), num_full=3)) == 1
    assert len(serve(one, prompt(7, 5), num_full=3)) == 5


def pin(one: blocks.Pool, token_ids: list[int]) -> list[bool]:
    return [one.pin(key) for key in path(token_ids)]


def test_pinned_blocks_are_never_evicted() -> None:
    one = pool(20)
    serve(one, prompt(7, 4))
    assert pin(one, prompt(7, 4)) == [True] * 4
    for number in range(100, 120):
        serve(one, prompt(number, 15))
    assert one.available == Counts(16, 0)
    assert kept(one, prompt(7, 4)) == 4
    assert not one.can_allocate(17)
    one.cache_share = 0.0
    assert one.num_cached == 4
    one.unpin_all()
    one.cache_share = 1.0
    assert one.available == Counts(20, 0)


def test_a_prompt_may_be_pinned_before_it_comes_and_stays_so() -> None:
    one = pool(20)
    pin(one, prompt(7, 4))
    for _ in range(2):
        serve(one, prompt(7, 4))
        serve(one, prompt(8, 14))
        assert kept(one, prompt(7, 4)) == 4
        one.forget_all()


def test_pins_are_bounded_and_the_beginning_is_kept() -> None:
    one = pool(20, most=0.5)
    assert pin(one, prompt(7, 8)) == [True] * 5 + [False] * 3
    one.set_caching(blocks.Caching(max_fraction=0.2))
    assert one.num_pinned == 2
    serve(one, prompt(7, 8))
    one.cache_share = 0.0
    assert kept(one, prompt(7, 8)) == 2


def test_pins_leave_the_blocks_of_the_longest_sequence() -> None:
    one = pool(20, reserved=18)
    assert sum(pin(one, prompt(7, 8))) == 2
    assert sum(pin(pool(20, reserved=30), prompt(7, 8))) == 0
    serve(one, prompt(7, 8))
    assert one.can_allocate(18)


def test_fewer_may_be_kept_from_now_on_or_none() -> None:
    one = pool(20)
    serve(one, prompt(7, 9))
    one.set_caching(blocks.Caching(max_fraction=0.25))
    one.check_integrity()
    assert one.num_cached == 5
    table = admit(one, prompt(7, 9))
    one.set_caching(None)
    one.check_integrity(table)
    assert one.num_findable == 0
    assert publish(one, prompt(7, 9), table) == 0
    one.release(table)
    assert one.num_free == 20


def test_what_is_forgotten_while_held_becomes_private() -> None:
    one = pool(20)
    serve(one, prompt(7, 3))
    tables = [admit(one, prompt(7, 3)) for _ in range(2)]
    one.forget_all()
    assert kept(one, prompt(7, 3)) == 0
    assert not one.is_writable(tables[0][0]), "two hold it"
    one.release(tables[0])
    assert one.is_writable(tables[1][0])
    one.check_integrity(tables[1])
    one.release(tables[1])
    assert one.num_free == 20


def test_holding_a_private_block_is_our_mistake() -> None:
    one = pool()
    with pytest.raises(AssertionError, match="not findable"):
        one.hold(admit(one, prompt(7, 3)))


def test_publishing_what_nobody_computed_is_our_mistake() -> None:
    one = pool()
    table = admit(one, prompt(7, 3))
    with pytest.raises(AssertionError, match="published by nobody"):
        one.publish(19, b"k" * 32, b"p" * 32, [1] * SIZE)
    with pytest.raises(AssertionError, match="whole blocks"):
        one.publish(table[0], b"k" * 32, b"p" * 32, [1] * (SIZE - 1))
    publish(one, prompt(7, 3), table)
    with pytest.raises(AssertionError, match="two keys"):
        one.publish(table[0], b"k" * 32, b"p" * 32, [7] * SIZE)


def lines_of(one: blocks.Pool, number: int) -> int:
    """Lines of our code that run while a request is served on a pool that is full of others."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "firsttoken_runtime" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    token_ids = prompt(number, 4)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        table = admit(one, token_ids)
        publish(one, token_ids, table)
        one.release(table)
    finally:
        sys.settrace(before)
    return count


def test_no_call_visits_the_pool() -> None:
    """A request costs the same in a pool of any size, with evictions."""
    counts = []
    for num_blocks in (100, 4000):
        one = pool(num_blocks)
        for number in range(num_blocks // 4):
            token_ids = prompt(10_000 + number, 4)
            table = admit(one, token_ids)
            publish(one, token_ids, table)
            one.release(table)
        evictions = one.evictions_total
        counts.append(max(lines_of(one, number) for number in range(5)))
        assert one.evictions_total > evictions
    assert counts[1] < 1.3 * counts[0], counts
