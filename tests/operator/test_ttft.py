"""Merging the pods' histograms and reading a quantile from the sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.state import TtftWindow
from firsttoken_operator import ttft


def window(edges: tuple[float, ...], counts: tuple[int, ...]) -> TtftWindow:
    return TtftWindow(window_s=300, slo_s=0.5, edges_s=edges, counts=counts)


def test_linear_inside_the_bucket() -> None:
    merged = ttft.merge([window((0.1, 0.5, 1.0), (0, 100, 0, 0))])
    assert merged is not None
    assert ttft.quantile_s(merged, 0.95) == pytest.approx(0.1 + 0.4 * 0.95)
    assert ttft.quantile_s(merged, 0.5) == pytest.approx(0.3)


def test_pods_are_added_not_averaged() -> None:
    quick = window((0.1, 1.0, 10.0), (99, 0, 0, 0))
    slow = window((0.1, 1.0, 10.0), (0, 0, 1, 0))
    merged = ttft.merge([quick, slow])
    assert merged is not None
    p95 = ttft.quantile_s(merged, 0.95)
    assert p95 is not None
    assert p95 < 0.1  # the mean of the two P95s would be about 5 s


def test_past_the_last_edge_is_at_least_that_edge() -> None:
    merged = ttft.merge([window((0.1, 1.0), (1, 1, 98))])
    assert merged is not None
    assert ttft.quantile_s(merged, 0.95) == 1.0


def test_no_requests_have_no_quantile() -> None:
    assert ttft.merge([]) is None
    merged = ttft.merge([window((0.1, 1.0), (0, 0, 0))])
    assert merged is not None
    assert ttft.quantile_s(merged, 0.95) is None
    assert ttft.fraction_above(merged, 0.5) is None


def test_different_edges_share_out_a_bucket() -> None:
    merged = ttft.merge([window((1.0,), (10, 0)), window((0.5, 1.0), (4, 0, 0))])
    assert merged is not None
    assert merged.edges_s == (0.5, 1.0)
    assert merged.counts == pytest.approx((9.0, 5.0, 0.0))


def test_fraction_above_an_edge_is_exact() -> None:
    merged = ttft.merge([window((0.1, 0.5, 1.0), (50, 30, 15, 5))])
    assert merged is not None
    assert ttft.fraction_above(merged, 0.5) == pytest.approx(0.2)
    assert ttft.fraction_above(merged, 0.75) == pytest.approx(0.125)


COUNTS = st.lists(st.integers(0, 1_000), min_size=5, max_size=5)
EDGES = (0.05, 0.1, 0.5, 2.0)


@given(st.lists(COUNTS, min_size=1, max_size=4), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_quantiles_grow_and_stay_inside_the_edges(pods: list[list[int]], one: float, other: float) -> None:
    merged = ttft.merge([window(EDGES, tuple(counts)) for counts in pods])
    assert merged is not None
    assert merged.total == pytest.approx(sum(sum(counts) for counts in pods))
    low = ttft.quantile_s(merged, min(one, other))
    high = ttft.quantile_s(merged, max(one, other))
    if low is None or high is None:
        assert merged.total == 0
        return
    assert 0 <= low <= high <= EDGES[-1]
