import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import windows


def test_edges_rise_by_a_quarter() -> None:
    ratios = [b / a for a, b in itertools.pairwise(windows.EDGES_S)]
    assert 1.2 < min(ratios) <= max(ratios) < 1.3
    assert (windows.EDGES_S[0], windows.EDGES_S[-1]) == (0.001, 125.0)


@pytest.mark.parametrize("slo_s", [0.5, 0.333, 1e-4, 500.0])
def test_one_edge_lies_exactly_at_the_objective(slo_s: float) -> None:
    snapshot = windows.Values(slo_s, 60.0).snapshot(0.0)
    assert slo_s in snapshot.edges_s
    assert list(snapshot.edges_s) == sorted(set(snapshot.edges_s))
    assert len(snapshot.counts) == len(snapshot.edges_s) + 1


def test_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LIMIT", 7)
    made = windows.Values(0.4, 60.0)
    for i in range(20):
        made.observe(0.1, float(i))
    assert sum(made.snapshot(20.0).counts) == 7


def test_values_leave_also_while_nobody_looks() -> None:
    made = windows.Values(0.4, 60.0)
    for at_s in range(1000):
        made.observe(0.1, float(at_s))
    assert len(made) == 60


@given(
    st.lists(st.tuples(st.floats(0, 200), st.floats(0, 30)), max_size=40),
    st.floats(1e-3, 100),
    st.floats(1, 60),
)
def test_counts_equal_a_recount(samples: list[tuple[float, float]], slo_s: float, window_s: float) -> None:
    window = windows.Values(1.0, window_s)
    now = 0.0
    kept: list[tuple[float, float]] = []
    for ttft_s, pause_s in samples:
        now += pause_s
        window.observe(ttft_s, now)
        kept.append((now, ttft_s))
    window.set_objective(slo_s, window_s)
    snapshot = window.snapshot(now)
    alive = [ttft_s for at, ttft_s in kept if at > now - window_s]
    edges = (-1.0, *snapshot.edges_s, float("inf"))
    expected = [sum(a < value <= b for value in alive) for a, b in itertools.pairwise(edges)]
    assert list(snapshot.counts) == expected


def test_decisions_leave_the_window_to_the_second() -> None:
    made = windows.Decisions()
    for at_s, is_breach in ((0.5, False), (1.5, True), (30.0, True)):
        made.add(is_breach=is_breach, at_s=at_s)
    assert made.within(60.0, 59.9) == (1, 2)
    assert made.within(60.0, 60.9) == (0, 2)
    assert made.within(60.0, 61.0) == (0, 1)
    assert made.within(60.0, 200.0) == (0, 0)


def test_decisions_that_nobody_reads_are_bounded() -> None:
    made = windows.Decisions()
    for second in range(2 * windows.LONGEST_S):
        made.add(is_breach=False, at_s=float(second))
    assert made.within(1e9, 0.0) == (windows.LONGEST_S, 0)
