from firsttoken_sidecar.class_ledger import ClassLedger, OpenRequest
from firsttoken_sidecar.objectives import ClassObjective


def ledger(limit_s: float | None = 0.4) -> ClassLedger:
    return ClassLedger(ClassObjective("chat", limit_s, 0.01))


def opened(made: ClassLedger, arrival_s: float) -> OpenRequest:
    request = OpenRequest(arrival_s, made)
    made.open(request)
    return request


def decided(made: ClassLedger, now: float, window_s: float = 60.0) -> tuple[int, int]:
    window = made.window(window_s, now)
    assert window is not None
    return window.hits, window.breaches


def test_exactly_the_limit_is_a_hit() -> None:
    made = ledger(0.5)
    made.measured(opened(made, 10.0), 10.5)
    made.measured(opened(made, 20.0), 20.5000001)
    assert decided(made, 21.0) == (1, 1)
    assert made.breaches_total == 1


def test_a_request_is_decided_when_its_age_reaches_the_limit_and_only_once() -> None:
    made = ledger(0.4)
    request = opened(made, 0.0)
    assert (made.overdue(0.4), decided(made, 0.4)) == (0, (0, 0))
    assert (made.overdue(0.41), decided(made, 0.41)) == (1, (0, 1))
    made.measured(request, 0.8)
    assert (made.overdue(0.8), decided(made, 0.8)) == (0, (0, 1))
    assert made.breaches_total == 1


def test_the_order_of_arrival_does_not_matter() -> None:
    made = ledger(0.4)
    opened(made, 5.0)
    opened(made, 1.0)
    assert made.overdue(2.0) == 1


def test_leaving_before_the_limit_is_undecided_after_it_a_breach() -> None:
    made = ledger(0.4)
    early, late = opened(made, 0.0), opened(made, 0.0)
    assert made.left(early, 0.4)
    assert not made.left(late, 0.5)
    assert (made.undecided_total, made.breaches_total) == (1, 1)
    assert decided(made, 0.5) == (0, 1)


def test_a_refusal_is_a_breach_the_first_time() -> None:
    made = ledger(0.4)
    made.refused(opened(made, 0.0), 0.01, is_first=True)
    made.refused(opened(made, 1.0), 1.01, is_first=False)
    assert (made.rejected_total, made.breaches_total, made.undecided_total) == (2, 1, 0)
    assert decided(made, 2.0) == (0, 1)
    assert made.overdue(9.0) == 0


def test_another_limit_forgets_what_was_decided_under_the_old_one() -> None:
    made = ledger(0.4)
    made.measured(opened(made, 0.0), 0.3)
    made.set_objective(ClassObjective("chat", 0.4, 0.05))
    assert decided(made, 1.0) == (1, 0)
    made.set_objective(ClassObjective("chat", 0.2, 0.05))
    assert decided(made, 1.0) == (0, 0)


def test_without_a_limit_nothing_is_late() -> None:
    made = ledger(None)
    request = opened(made, 0.0)
    assert made.overdue(1e6) == 0
    made.measured(request, 1e6)
    assert made.breaches_total == 0
    assert made.window(60.0, 1e6) is None


def test_the_window_says_what_the_class_is_held_to() -> None:
    made = ledger(0.4)
    opened(made, 0.0)
    opened(made, 1.0)
    window = made.window(60.0, 1.2)
    assert window is not None
    assert (window.name, window.limit_s, window.allowed_fraction) == ("chat", 0.4, 0.01)
    assert (window.waiting, window.overdue, window.breaches, window.arrivals_total) == (2, 1, 1, 2)


def test_a_breach_stays_one_when_the_limit_is_raised() -> None:
    made = ledger(0.4)
    request = opened(made, 0.0)
    made.overdue(0.5)
    made.set_objective(ClassObjective("chat", 2.0, 0.01))
    made.measured(request, 1.0)
    assert (decided(made, 1.0), made.breaches_total) == ((0, 0), 1)
