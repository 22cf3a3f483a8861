"""The host tier's bookkeeping: what it takes, what it keeps, what it never touches."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.cache import host, host_frames
from firsttoken_runtime.cache.formats import Format
from runtime.host_tier import evicted

FULL, QUANTIZED = Format.FULL, Format.QUANTIZED


def of_full_blocks(count: int) -> host.HostIndex:
    return host.HostIndex(100 * count, {FULL: 100})


def stored(index: host.HostIndex, *names: int, fmt: Format = FULL) -> list[int]:
    """Slots of blocks whose copies have ended."""
    slots = []
    for name in names:
        slot = index.store(evicted(name, fmt))
        assert slot is not None
        index.unlock([slot])
        slots.append(slot)
    return slots


def found(index: host.HostIndex, name: int, fmt: Format = FULL) -> int | None:
    block = evicted(name, fmt)
    return index.find(block.key, block.token_ids, fmt)


def test_what_was_stored_is_found() -> None:
    index = of_full_blocks(2)
    slots = stored(index, 1, 2)
    assert [found(index, name) for name in (1, 2, 3)] == [*slots, None]
    assert (index.num_blocks, index.num_bytes) == (2, 200)
    index.check_integrity()


def test_a_key_with_other_tokens_or_another_format_is_a_miss() -> None:
    index = of_full_blocks(2)
    stored(index, 1)
    block = evicted(1)
    assert index.find(block.key, (*block.token_ids[:-1], 9), FULL) is None
    assert index.find(block.key, block.token_ids[:-1], FULL) is None
    assert index.find(block.key, block.token_ids, QUANTIZED) is None


def test_where_copies_cost_much_what_nobody_asked_for_twice_is_not_copied() -> None:
    index = of_full_blocks(2)
    index.takes_unasked = False
    assert index.store(evicted(1, hits=0)) is None
    assert index.num_refused == 0
    assert index.store(evicted(1, hits=1)) is not None


def test_a_preempted_sequence_wants_its_blocks_whatever_their_hits() -> None:
    index = of_full_blocks(4)
    index.takes_unasked = False
    block = evicted(1, hits=0)
    index.want([block.key])
    index.want([block.key])
    index.unwant([block.key])
    assert index.store(block) is not None, "the other sequence still wants it"
    index.unwant([block.key, evicted(9).key])
    assert index.store(evicted(2, hits=0)) is None


def store_once(index: host.HostIndex, name: int, hits: int) -> None:
    slot = index.store(evicted(name, hits=hits))
    if slot is not None:
        index.unlock([slot])


def test_texts_seen_once_pass_by_what_was_asked_for() -> None:
    index = of_full_blocks(10)
    stored(index, *range(8))
    for name in range(100, 150):
        store_once(index, name, hits=0)
    assert [found(index, name) is not None for name in range(8)] == [True] * 8
    assert [found(index, name) is not None for name in range(147, 150)] == [False, True, True]
    index.check_integrity()


def test_what_was_asked_for_long_ago_makes_room_too() -> None:
    index = of_full_blocks(10)
    stored(index, *range(10))
    for name in range(100, 103):
        store_once(index, name, hits=0)
    assert [found(index, name) is None for name in range(4)] == [True, True, False, False]
    stored(index, *range(200, 208))
    assert all(found(index, name) is None for name in range(2, 8))


@pytest.mark.parametrize("ask", ["hit", "wanted", "wanted after it came", "loaded"])
def test_being_asked_for_protects(ask: str) -> None:
    index = of_full_blocks(10)
    block = evicted(1, hits=0)
    if ask == "wanted":
        index.want([block.key])
    store_once(index, 1, hits=0)
    assert index.entry(slot_of(index, 1)).was_asked_for == (ask == "wanted")
    if ask == "hit":
        store_once(index, 1, hits=1)
    elif ask == "wanted after it came":
        index.want([block.key])
    elif ask == "loaded":
        index.lock([slot_of(index, 1)])
        index.unlock([slot_of(index, 1)])
    assert index.entry(slot_of(index, 1)).was_asked_for
    for name in range(100, 130):
        store_once(index, name, hits=0)
    assert found(index, 1) is not None


def slot_of(index: host.HostIndex, name: int) -> int:
    slot = found(index, name)
    assert slot is not None
    return slot


def test_what_is_here_needs_no_second_copy_and_counts_as_used() -> None:
    index = of_full_blocks(2)
    stored(index, 1, 2)
    assert index.store(evicted(1)) is None
    stored(index, 3)
    assert found(index, 2) is None
    assert found(index, 1) is not None


def test_the_oldest_goes_first() -> None:
    index = of_full_blocks(2)
    stored(index, 1, 2, 3)
    assert found(index, 1) is None
    assert index.num_evictions == 1


def test_looking_is_not_using_but_loading_is() -> None:
    index = of_full_blocks(2)
    first, _ = stored(index, 1, 2)
    assert found(index, 1) == first
    stored(index, 3)
    assert found(index, 1) is None
    slot = found(index, 2)
    assert slot is not None
    index.lock([slot])
    index.unlock([slot])
    stored(index, 4)
    assert found(index, 2) == slot


def test_the_end_of_a_loaded_text_goes_before_its_beginning() -> None:
    index = of_full_blocks(3)
    slots = stored(index, 1, 2, 3)
    index.lock(slots)
    index.unlock(slots)
    stored(index, 4)
    assert [found(index, name) is None for name in (1, 2, 3)] == [False, False, True]


def test_a_locked_slot_is_never_given_to_another_block() -> None:
    index = of_full_blocks(2)
    first, second = stored(index, 1, 2)
    index.lock([first, second])
    index.lock([first])
    assert index.store(evicted(3)) is None
    assert index.num_refused == 1
    index.unlock([first])
    assert index.store(evicted(3)) is None, "a second copy from it is still under way"
    index.unlock([first])
    assert index.store(evicted(3)) == first


def test_a_save_is_locked_from_the_start() -> None:
    index = of_full_blocks(1)
    assert index.store(evicted(1)) is not None
    assert index.store(evicted(2)) is None


def test_unlocking_twice_is_our_mistake() -> None:
    index = of_full_blocks(1)
    (slot,) = stored(index, 1)
    with pytest.raises(AssertionError, match="unlocked twice"):
        index.unlock([slot])


def test_what_did_not_arrive_is_forgotten() -> None:
    index = of_full_blocks(1)
    slot = index.store(evicted(1))
    assert slot is not None
    index.discard(slot)
    assert found(index, 1) is None
    assert index.num_bytes == 0
    stored(index, 2)
    index.check_integrity()


def test_a_tier_smaller_than_a_block_takes_nothing() -> None:
    index = host.HostIndex(99, {FULL: 100})
    assert index.store(evicted(1)) is None
    assert index.num_refused == 1


def test_restored_blocks_displace_nobody_and_are_the_oldest() -> None:
    index = of_full_blocks(3)
    stored(index, 1)
    for name in (2, 3, 4):
        block = evicted(name)
        slot = index.restore(block.key, block.parent_key, block.token_ids, block.fmt)
        if name == 4:
            assert slot is None
        else:
            assert slot is not None
            index.unlock([slot])
    stored(index, 5)
    assert found(index, 3) is None, "it was used before 2"
    assert found(index, 1) is not None
    assert found(index, 2) is not None


def test_a_reset_forgets_everything_and_cuts_anew() -> None:
    index = of_full_blocks(2)
    (slot,) = stored(index, 1)
    index.lock([slot])
    index.reset({FULL: 50})
    assert index.num_bytes == 0
    assert found(index, 1) is None
    stored(index, 1, 2, 3, 4)
    index.check_integrity()


def test_memory_goes_from_one_format_to_the_other_by_frames() -> None:
    index = host.HostIndex(3_200, {FULL: 100, QUANTIZED: 40})
    assert index.cut.frame_bytes == 200, "nothing of it is wasted by either"
    names = range(1, 81)
    stored(index, *names, fmt=QUANTIZED)
    assert index.num_bytes == 3_200
    stored(index, 100)
    assert [found(index, name, QUANTIZED) is None for name in range(1, 7)] == [True] * 5 + [False]
    stored(index, 101)
    assert index.num_blocks == 77
    index.check_integrity()


def test_a_frame_with_a_locked_block_stays_whole() -> None:
    index = host.HostIndex(3_200, {FULL: 100, QUANTIZED: 40})
    slots = stored(index, *range(1, 81), fmt=QUANTIZED)
    index.lock([slots[0]])
    stored(index, 100)
    assert [found(index, name, QUANTIZED) is None for name in (1, 5, 6, 10, 11)] == [
        False,
        False,
        True,
        True,
        False,
    ]


@given(st.integers(0, 10_000), st.integers(1, 900), st.integers(1, 900))
def test_no_cut_overlaps_or_goes_beyond_the_capacity(capacity: int, full: int, quantized: int) -> None:
    cut = host_frames.cut(capacity, {FULL: full, QUANTIZED: quantized})
    assert cut.num_frames * cut.frame_bytes <= capacity
    assert cut.num_frames >= min(capacity // max(full, quantized), host_frames.LEAST_FRAMES)
    for fmt, size in cut.bytes_of.items():
        ends = [cut.offset(slot, fmt) for slot in cut.slots(fmt)]
        assert all(after - before >= size for before, after in itertools.pairwise(ends))
        assert not ends or ends[-1] + size <= capacity


Call = tuple[str, int, Format]
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "pass by", "lock", "unlock", "restore", "discard", "want"]),
        st.integers(0, 11),
        st.sampled_from(Format),
    ),
    max_size=80,
)


@settings(max_examples=200)
@given(CALLS, st.integers(0, 1_500))
def test_any_order_of_calls_keeps_what_is_locked_in_its_place(calls: list[Call], capacity: int) -> None:
    """Against the plain rule: a locked block is found in the same slot until it is unlocked."""
    index = host.HostIndex(capacity, {FULL: 100, QUANTIZED: 55})
    locked: dict[tuple[int, Format], list[int]] = {}
    for call, name, fmt in calls:
        block = evicted(name, fmt, hits=int(call == "store"))
        held = locked.get((name, fmt), [])
        if call == "want":
            index.want([block.key])
        elif call in ("store", "pass by") and (slot := index.store(block)) is not None:
            assert not held
            locked[name, fmt] = [slot]
        elif call == "restore":
            slot = index.restore(block.key, block.parent_key, block.token_ids, fmt)
            if slot is not None:
                locked[name, fmt] = [slot]
        elif call == "lock" and (slot := found(index, name, fmt)) is not None:
            index.lock([slot])
            locked.setdefault((name, fmt), []).append(slot)
        elif call == "unlock" and held:
            index.unlock([held.pop()])
        elif call == "discard" and len(held) == 1:
            index.discard(held.pop())
            assert found(index, name, fmt) is None
        for (other, other_fmt), slots in locked.items():
            assert all(found(index, other, other_fmt) == slot for slot in slots)
        assert index.num_locked == sum(bool(slots) for slots in locked.values())
        index.check_integrity()
