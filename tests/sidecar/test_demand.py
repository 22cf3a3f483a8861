import pytest

from firsttoken_sidecar import demand

ONE, OTHER = ("me", b"1"), ("me", b"2")


def test_a_refused_body_counts_once_in_a_minute() -> None:
    made = demand.Demand()
    assert made.refused(ONE, 100, 0.0)
    assert not made.refused(ONE, 100, 59.9)
    assert made.refused(OTHER, 7, 59.9)
    assert made.tokens_total == 107
    assert made.refused(ONE, 100, 60.0)
    assert made.tokens_total == 207


def test_a_retry_that_is_served_adds_nothing() -> None:
    made = demand.Demand()
    made.refused(ONE, 100, 0.0)
    made.served(ONE, 90, 5.0)
    assert made.tokens_total == 100
    made.served(ONE, 90, 6.0)
    assert made.tokens_total == 190


def test_equal_requests_that_are_served_are_two() -> None:
    made = demand.Demand()
    made.served(ONE, 10, 0.0)
    made.served(ONE, 10, 0.1)
    assert made.tokens_total == 20


def test_clients_are_apart() -> None:
    made = demand.Demand()
    assert made.refused(("a", b"1"), 1, 0.0)
    assert made.refused(("b", b"1"), 1, 0.0)


def test_what_cannot_be_told_apart_counts_each_time() -> None:
    made = demand.Demand()
    assert made.refused(None, 5, 0.0)
    assert made.refused(None, 5, 0.0)
    assert made.tokens_total == 10


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MOST_REMEMBERED", 3)
    made = demand.Demand()
    for i in range(10):
        made.refused(("me", bytes([i])), 1, float(i))
    assert len(made._refused) == 3
