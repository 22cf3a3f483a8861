"""The bytes of the host tier."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import host_frames, host_store
from firsttoken_runtime.cache.formats import Format

FULL, QUANTIZED = Format.FULL, Format.QUANTIZED


def test_every_record_keeps_its_own_bytes() -> None:
    cut = host_frames.cut(1_000, {FULL: 96})
    store = host_store.HostStore(1_000, cut, pinned=False)
    records = {slot: bytes([slot]) * 96 for slot in cut.slots(FULL)}
    assert len(records) == 10
    for slot, data in records.items():
        store.write(slot, FULL, data)
    assert {slot: store.read(slot, FULL) for slot in records} == records


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2_000))
def test_records_of_two_formats_do_not_touch_each_other(full: int, quantized: int, capacity: int) -> None:
    cut = host_frames.cut(capacity, {FULL: full, QUANTIZED: quantized})
    store = host_store.HostStore(capacity, cut, pinned=False)
    frames = host_frames.Frames(cut)
    written: list[tuple[int, Format, bytes]] = []
    fmt = FULL
    while (slot := frames.take(fmt)) is not None:
        data = bytes([len(written) % 251]) * cut.bytes_of[fmt]
        store.write(slot, fmt, data)
        written.append((slot, fmt, data))
        fmt = QUANTIZED if fmt is FULL else FULL
    assert [store.read(slot, fmt) for slot, fmt, _ in written] == [data for *_, data in written]


def test_a_record_of_another_length_is_our_mistake() -> None:
    store = host_store.HostStore(100, host_frames.cut(100, {FULL: 50}), pinned=False)
    with pytest.raises(AssertionError):
        store.write(0, FULL, b"x" * 49)


def test_memory_that_is_not_there_is_refused_by_the_name_of_the_setting() -> None:
    capacity = 1 << 60
    with pytest.raises(host_store.TooMuch, match="--host-memory"):
        host_store.HostStore(capacity, host_frames.cut(capacity, {FULL: 1 << 50}), pinned=False)
