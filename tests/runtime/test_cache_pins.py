"""Pins: a bounded number of keys, the first ones longest."""

from firsttoken_runtime.cache.formats import NO_BLOCKS, Counts, Format
from firsttoken_runtime.cache.pins import Pins

KEYS = [bytes([number]) * 32 for number in range(6)]


def pinned(num_full: int, num_quantized: int) -> Pins:
    pins = Pins()
    pins.bound(Counts(num_full, num_quantized))
    for key in KEYS[:num_full]:
        assert pins.add(key, Format.FULL)
    for key in KEYS[num_full : num_full + num_quantized]:
        assert pins.add(key, Format.QUANTIZED)
    return pins


def test_nothing_is_pinned_without_room() -> None:
    pins = Pins()
    assert not pins.add(KEYS[0], Format.FULL)
    assert KEYS[0] not in pins


def test_room_is_counted_by_format() -> None:
    pins = pinned(2, 1)
    assert pins.counts == Counts(2, 1)
    assert not pins.add(KEYS[5], Format.FULL)
    assert not pins.add(KEYS[5], Format.QUANTIZED)


def test_pinning_twice_takes_room_once() -> None:
    pins = pinned(2, 0)
    assert pins.add(KEYS[0], Format.FULL)
    assert pins.counts == Counts(2, 0)


def test_with_less_room_the_first_ones_stay() -> None:
    pins = pinned(3, 2)
    assert pins.bound(Counts(1, 2)) == [KEYS[2], KEYS[1]]
    assert [key in pins for key in KEYS] == [True, False, False, True, True, False]
    assert pins.counts == Counts(1, 2)


def test_clearing_makes_room() -> None:
    pins = pinned(1, 2)
    assert pins.clear() == KEYS[:3]
    assert pins.counts == NO_BLOCKS
    assert pins.add(KEYS[4], Format.FULL)
