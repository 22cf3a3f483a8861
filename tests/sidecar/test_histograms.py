import pytest

from firsttoken_sidecar import histograms


@pytest.mark.parametrize("limit_s", [0.25, 0.333, 1e-4, 500.0])
def test_an_edge_lies_exactly_at_each_limit(limit_s: float) -> None:
    edges_s = histograms.edges_with((0.1, 0.25, 1.0), limit_s, None, 0.7)
    assert {limit_s, 0.7} <= set(edges_s)
    assert list(edges_s) == sorted(set(edges_s))


def test_an_edge_belongs_to_its_bucket() -> None:
    made = histograms.Histogram((0.1, 0.5))
    for value_s in (0.1, 0.1000001, 0.5, 0.6):
        made.observe(value_s)
    assert made.counts == [1, 2, 1]
    assert made.sum_s == pytest.approx(1.3000001)


def test_a_value_may_count_several_times() -> None:
    made = histograms.Histogram((0.1,))
    made.observe(0.05, times=3)
    assert made.counts == [3, 0]
    assert made.sum_s == pytest.approx(0.15)


def test_each_bucket_keeps_its_newest_trace() -> None:
    made = histograms.Histogram((0.1,))
    made.observe(0.02, trace_id="a")
    made.observe(0.03, trace_id="b")
    made.observe(0.04)
    made.observe(0.2, trace_id="c")
    assert made.exemplars == {0: histograms.Exemplar("b", 0.03), 1: histograms.Exemplar("c", 0.2)}


def test_a_family_starts_anew_when_an_edge_moves_and_only_then() -> None:
    family = histograms.Family((0.1, 0.5))
    family.observe(("a",), 0.2)
    family.set_edges((0.1, 0.5))
    assert family.of(("a",)).counts == [0, 1, 0]
    assert family.of(("b",)).counts == [0, 0, 0]
    family.set_edges((0.1, 0.4))
    assert family.series == {}
    assert family.of(("a",)).edges_s == (0.1, 0.4)
