"""Counts of blocks add up format by format."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache.formats import NO_BLOCKS, Counts, Format

COUNTS = st.builds(Counts, st.integers(-5, 9), st.integers(-5, 9))


@given(COUNTS, COUNTS)
def test_sums_and_differences_are_by_format(one: Counts, other: Counts) -> None:
    both = one + other
    assert (both.full, both.quantized) == (one.full + other.full, one.quantized + other.quantized)
    assert both - other == one
    assert both.total == one.total + other.total


@given(COUNTS, COUNTS)
def test_fits_needs_room_for_each_format(one: Counts, room: Counts) -> None:
    assert one.fits(room) == all(one[fmt] <= room[fmt] for fmt in Format)


def test_counts_of_one_format() -> None:
    assert Counts.of(Format.FULL, 3) == Counts(3, 0)
    assert Counts.of(Format.QUANTIZED, 3) == Counts(0, 3)
    assert Counts(3, 5)[Format.QUANTIZED] == 5
    assert NO_BLOCKS.total == 0


def test_room_in_one_format_is_none_in_the_other() -> None:
    assert not Counts(2, 0).fits(Counts(1, 9))


def test_the_numbers_of_formats_are_in_keys_and_files() -> None:
    assert [(fmt.name, fmt.value) for fmt in Format] == [("FULL", 0), ("QUANTIZED", 1)]
