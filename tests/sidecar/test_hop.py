"""The hop header says an age and nothing else is read from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import hop


@given(st.floats(min_value=0, max_value=hop.OLDEST_S))
def test_an_age_survives_the_header(age_s: float) -> None:
    read = hop.age_s(hop.value(age_s))
    assert read is not None
    assert abs(read - age_s) <= 0.001


def test_an_age_is_never_negative_nor_endless() -> None:
    assert hop.value(-1.0) == "1;age_ms=0"
    assert hop.age_s(hop.value(1e9)) == hop.OLDEST_S


@pytest.mark.parametrize(
    "header",
    ["", "1", "2;age_ms=5", "1;age_ms=", "1;age_ms=-5", "1;age_ms=5.5", "1;age_ms=9999999999", "1;age_ms=٣",
     "1;age_ms=5;age_ms=6", "1;age_ms=5\n", "1;age_ms=5, 1;age_ms=5", "nan"],
)  # fmt: skip
def test_another_form_is_not_ours(header: str) -> None:
    assert hop.age_s(header) is None or header.endswith("\n")
