import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.hot_settings import Objective
from firsttoken_sidecar import timing


def ledger(slo_s: float = 0.4, window_s: float = 60.0) -> timing.Ledger:
    made = timing.Ledger()
    made.set_objective(Objective(ttft_p95_s=slo_s, window_s=window_s))
    return made


def within_slo(made: timing.Ledger, now: float) -> tuple[int, int]:
    """How many decided requests of the window met the objective, and how many did not."""
    assert made.window is not None
    snapshot = made.window.snapshot(now)
    edge = snapshot.edges_s.index(snapshot.slo_s)
    return sum(snapshot.counts[: edge + 1]), sum(snapshot.counts[edge + 1 :])


def test_window_edges_rise_by_a_quarter() -> None:
    ratios = [b / a for a, b in itertools.pairwise(timing.WINDOW_EDGES_S)]
    assert 1.2 < min(ratios) <= max(ratios) < 1.3
    assert (timing.WINDOW_EDGES_S[0], timing.WINDOW_EDGES_S[-1]) == (0.001, 125.0)


@pytest.mark.parametrize("slo_s", [0.5, 0.333, 1e-4, 500.0])
def test_one_edge_lies_exactly_at_the_objective(slo_s: float) -> None:
    made = ledger(slo_s)
    assert made.window is not None
    snapshot = made.window.snapshot(0.0)
    assert slo_s in snapshot.edges_s
    assert list(snapshot.edges_s) == sorted(set(snapshot.edges_s))
    assert len(snapshot.counts) == len(snapshot.edges_s) + 1
    assert all(slo_s in histogram.edges_s for histogram in made.histograms.values())


def test_exactly_the_objective_is_a_hit() -> None:
    made = ledger(slo_s=0.5)
    made.first_content(made.open(10.0), 10.5)
    made.first_content(made.open(20.0), 20.5000001)
    assert within_slo(made, 21.0) == (1, 1)
    assert made.breaches_total == 1


def test_a_request_counts_once() -> None:
    made = ledger()
    request = made.open(0.0)
    made.first_content(request, 0.1)
    made.first_content(request, 0.2)
    made.close(request, 9.0)
    made.close(request, 9.0)
    assert within_slo(made, 9.0) == (1, 0)
    assert (made.arrivals_total, made.undecided_total, made.breaches_total) == (1, 0, 0)


def test_waiting_past_the_objective_is_overdue_until_the_first_token() -> None:
    made = ledger(slo_s=0.4)
    first, second = made.open(0.0), made.open(0.3)
    assert made.overdue(0.4) == 0
    assert made.overdue(0.41) == 1
    assert made.overdue(0.71) == 2
    made.first_content(first, 0.8)
    assert made.overdue(0.8) == 1
    made.close(second, 0.9)
    assert made.overdue(9.0) == 0
    assert within_slo(made, 0.9) == (0, 2)


def test_leaving_before_the_objective_is_undecided_after_it_a_breach() -> None:
    made = ledger(slo_s=0.4)
    early, late = made.open(0.0), made.open(0.0)
    made.close(early, 0.4)
    made.close(late, 0.5)
    assert (made.undecided_total, made.breaches_total) == (1, 1)
    assert within_slo(made, 0.5) == (0, 1)


def test_requests_leave_the_window() -> None:
    made = ledger(window_s=60.0)
    made.first_content(made.open(0.0), 0.1)
    made.first_content(made.open(30.0), 30.1)
    assert within_slo(made, 60.0) == (2, 0)
    assert within_slo(made, 60.2) == (1, 0)
    assert within_slo(made, 90.2) == (0, 0)


def test_a_new_objective_recounts_the_window_and_restarts_the_histogram() -> None:
    made = ledger(slo_s=0.4)
    made.first_content(made.open(0.0), 0.3)
    made.set_objective(Objective(ttft_p95_s=0.2, window_s=60.0))
    assert within_slo(made, 1.0) == (0, 1)
    assert sum(made.histograms[False].counts) == 0
    assert 0.2 in made.histograms[False].edges_s
    assert 0.4 not in made.histograms[False].edges_s


def test_another_window_alone_keeps_the_histogram() -> None:
    made = ledger(slo_s=0.4)
    made.first_content(made.open(0.0), 0.3)
    made.set_objective(Objective(ttft_p95_s=0.4, window_s=5.0))
    assert sum(made.histograms[False].counts) == 1
    assert within_slo(made, 6.0) == (0, 0)


def test_without_an_objective_nothing_is_overdue_and_values_are_still_counted() -> None:
    made = timing.Ledger()
    request = made.open(0.0)
    assert made.overdue(100.0) == 0
    made.first_content(request, 100.0)
    assert made.window is None
    assert sum(made.histograms[False].counts) == 1


def test_streams_and_whole_answers_are_apart() -> None:
    made = ledger()
    request = made.open(0.0)
    request.streamed = True
    made.first_content(request, 0.07)
    assert sum(made.histograms[True].counts) == 1
    assert made.histograms[True].sum_s == pytest.approx(0.07)
    assert sum(made.histograms[False].counts) == 0


def test_the_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WINDOW_LIMIT", 7)
    made = ledger()
    for i in range(20):
        made.first_content(made.open(float(i)), i + 0.1)
    assert within_slo(made, 20.0) == (7, 0)


@given(
    st.lists(st.tuples(st.floats(0, 200), st.floats(0, 30)), max_size=40),
    st.floats(1e-3, 100),
    st.floats(1, 60),
)
def test_counts_equal_a_recount(samples: list[tuple[float, float]], slo_s: float, window_s: float) -> None:
    window = timing.Window(Objective(ttft_p95_s=1.0, window_s=window_s))
    now = 0.0
    kept: list[tuple[float, float]] = []
    for ttft_s, pause_s in samples:
        now += pause_s
        window.observe(ttft_s, now)
        kept.append((now, ttft_s))
    window.set_objective(Objective(ttft_p95_s=slo_s, window_s=window_s))
    snapshot = window.snapshot(now)
    alive = [ttft_s for at, ttft_s in kept if at > now - window_s]
    edges = (-1.0, *snapshot.edges_s, float("inf"))
    expected = [sum(a < value <= b for value in alive) for a, b in itertools.pairwise(edges)]
    assert list(snapshot.counts) == expected
