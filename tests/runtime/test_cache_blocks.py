"""The block pool: every block is free or held, always."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import blocks


def test_blocks_for_counts_whole_blocks() -> None:
    pool = blocks.Pool(4, 16)
    assert [pool.blocks_for(tokens) for tokens in (0, 1, 16, 17, 32, 33)] == [0, 1, 1, 2, 2, 3]


def test_allocate_and_release_keep_count() -> None:
    pool = blocks.Pool(3, 16)
    taken = pool.allocate(2)
    assert pool.num_used == 2
    assert not pool.can_allocate(2)
    pool.check_integrity(taken)
    pool.release(taken)
    pool.check_integrity()
    assert pool.num_free == 3


def test_allocating_more_than_is_free_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        blocks.Pool(1, 16).allocate(2)


def test_releasing_twice_is_our_mistake() -> None:
    pool = blocks.Pool(2, 16)
    taken = pool.allocate(1)
    pool.release(taken)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(taken)


def test_a_leak_is_found() -> None:
    pool = blocks.Pool(2, 16)
    pool.allocate(1)
    with pytest.raises(AssertionError, match="counts 1 holds, 0 exist"):
        pool.check_integrity()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60))
def test_any_order_of_calls_keeps_the_invariant(calls: list[tuple[bool, int]]) -> None:
    pool = blocks.Pool(7, 4)
    held: list[list[int]] = []
    for allocates, count in calls:
        if allocates and pool.can_allocate(count):
            held.append(pool.allocate(count))
        elif not allocates and held:
            pool.release(held.pop(count % len(held)))
        holds = [block_id for table in held for block_id in table]
        assert len(set(holds)) == len(holds), "two sequences hold one block"
        pool.check_integrity(holds)
