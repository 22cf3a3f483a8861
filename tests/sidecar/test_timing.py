import math

import pytest

from builders import objectives as builders
from firsttoken_sidecar import timing
from firsttoken_sidecar.inspection import Inspected
from firsttoken_sidecar.stages import Stage, Stamps

CLASSES = {"interactive": 1.0, "batch": 8.0}


def ledger(slo_s: float = 0.4, **changes: object) -> timing.Ledger:
    made = timing.Ledger()
    made.set_settings(builders.settings(slo_s, **changes))  # type: ignore[arg-type]
    return made


def within_slo(made: timing.Ledger, now: float) -> tuple[int, int]:
    """How many decided requests of the window met the objective, and how many did not."""
    window = made.window(now)
    assert window is not None
    edge = window.edges_s.index(window.slo_s)
    return sum(window.counts[: edge + 1]), sum(window.counts[edge + 1 :])


def breaches(made: timing.Ledger) -> dict[str, int]:
    return {each.objective.name: each.breaches_total for each in made.classes}


def counted(made: timing.Ledger, *labels: str) -> int:
    return sum(made.ttft.of(labels).counts)


def test_a_request_counts_once() -> None:
    made = ledger()
    request = made.open(0.0)
    made.first_content(request, 0.1)
    made.first_content(request, 0.2)
    made.close(request, 9.0)
    made.close(request, 9.0)
    assert within_slo(made, 9.0) == (1, 0)
    assert (made.arrivals_total, breaches(made)) == (1, {"": 0})


def test_waiting_past_the_limit_is_overdue_until_the_first_token() -> None:
    made = ledger(0.4)
    first, second = made.open(0.0), made.open(0.3)
    assert [made.overdue(now) for now in (0.4, 0.41, 0.71)] == [0, 1, 2]
    made.first_content(first, 0.8)
    assert made.overdue(0.8) == 1
    made.close(second, 0.9)
    assert made.overdue(9.0) == 0
    assert within_slo(made, 0.9) == (0, 2)


def test_requests_leave_the_window() -> None:
    made = ledger(window_s=60.0)
    made.first_content(made.open(0.0), 0.1)
    made.first_content(made.open(30.0), 30.1)
    assert [within_slo(made, now) for now in (60.0, 60.2, 90.2)] == [(2, 0), (1, 0), (0, 0)]


def test_classes_are_held_to_their_own_limits() -> None:
    made = ledger(0.4, classes=CLASSES)
    for name in CLASSES:
        made.first_content(made.open(0.0, name), 2.0)
    assert breaches(made) == {"interactive": 1, "batch": 0}
    assert [(each.name, each.hits, each.breaches) for each in made.class_windows(3.0)] == [
        ("interactive", 0, 1),
        ("batch", 1, 0),
    ]
    assert within_slo(made, 3.0) == (0, 1), "only the default class is held to the service's objective"


def test_a_class_that_nobody_declared_counts_as_the_default_one() -> None:
    made = ledger(classes=CLASSES)
    made.open(0.0, "made-up")
    made.open(0.0)
    assert [each.arrivals_total for each in made.classes] == [2, 0]


def test_all_classes_have_the_edges_of_all_limits() -> None:
    made = ledger(0.35, classes=CLASSES | {"slow": 33.0})
    for name in (*CLASSES, "slow"):
        assert {0.35, 8.0, 33.0} <= set(made.ttft.of((name, "", "true")).edges_s)
    assert ledger(tpot_s=0.033).itl.of(("", "")).edges_s.count(0.033) == 1


def test_a_new_objective_recounts_the_window_and_restarts_the_histograms() -> None:
    made = ledger(0.4)
    made.first_content(made.open(0.0), 0.3)
    made.set_settings(builders.settings(0.2))
    assert within_slo(made, 1.0) == (0, 1)
    assert counted(made, "", "", "false") == 0
    assert 0.2 in made.ttft.of(("", "", "false")).edges_s
    assert 0.4 not in made.ttft.of(("", "", "false")).edges_s


def test_another_window_alone_keeps_the_histogram() -> None:
    made = ledger(0.4)
    made.first_content(made.open(0.0), 0.3)
    made.set_settings(builders.settings(0.4, 5.0))
    assert counted(made, "", "", "false") == 1
    assert within_slo(made, 6.0) == (0, 0)


def test_a_class_that_goes_takes_no_open_request_with_it() -> None:
    made = ledger(classes=CLASSES)
    request = made.open(0.0, "batch")
    made.set_settings(builders.settings(0.4))
    made.first_content(request, 0.1)
    made.close(request, 0.2)
    assert [each.objective.name for each in made.classes] == [""]
    assert made.overdue(100.0) == 0


def test_a_class_that_stays_keeps_its_counts() -> None:
    made = ledger(classes=CLASSES)
    made.open(0.0, "batch")
    made.set_settings(builders.settings(0.4, classes={"batch": 9.0, "new": 1.0}))
    assert [each.arrivals_total for each in made.classes] == [1, 0]


def test_without_settings_nothing_is_overdue_and_values_are_still_counted() -> None:
    made = timing.Ledger()
    request = made.open(0.0, tenant="a")
    assert made.overdue(100.0) == 0
    made.first_content(request, 100.0)
    assert made.window(100.0) is None
    assert list(made.class_windows(100.0)) == []
    assert counted(made, "", "a", "false") == 1


def test_streams_and_whole_answers_are_apart() -> None:
    made = ledger()
    request = made.open(0.0, tenant="acme", trace_id="f" * 32)
    request.streamed = True
    made.first_content(request, 0.07)
    assert counted(made, "", "acme", "true") == 1
    assert made.ttft.of(("", "acme", "true")).sum_s == pytest.approx(0.07)
    assert [each.trace_id for each in made.ttft.of(("", "acme", "true")).exemplars.values()] == ["f" * 32]
    assert counted(made, "", "acme", "false") == 0


def test_the_stages_of_a_request_add_up_to_its_ttft() -> None:
    made = ledger()
    request = made.open(10.0)
    request.sent(10.01)
    request.sent(10.05)  # elsewhere, after the first had failed
    made.first_content(request, 10.5)
    made.explained(request, 0.5, 0.002, Stamps(stages_s={"queue": 0.1, "prefill": 0.3}))
    seconds = {stage: made.stages.of((stage, "")).sum_s for stage in Stage}
    assert math.isclose(math.fsum(seconds.values()), 0.5)
    assert math.isclose(seconds[Stage.SIDECAR_QUEUE], 0.05)
    assert (seconds[Stage.PREFILL], seconds[Stage.SIDECAR_WRITE]) == (0.3, 0.002)


def asked(made: timing.Ledger, now: float, body: bytes = b"1", client: str = "me") -> timing.OpenRequest:
    inspected = Inspected(body_hash=body, model="m", prompt_bytes=500, estimated_prompt_tokens=100)
    return made.open(now, client=client, inspected=inspected)


def test_demand_is_what_the_engine_counted_else_what_was_estimated() -> None:
    made = ledger()
    served = asked(made, 0.0)
    made.first_content(served, 0.1)
    made.explained(served, 0.1, 0.0, Stamps(prompt_tokens=90, cached_tokens=30))
    assert made.demand.tokens_total == 60
    unexplained = asked(made, 1.0)
    made.first_content(unexplained, 1.1)
    made.explained(unexplained, 0.1, 0.0, None)
    assert made.demand.tokens_total == 160


def test_a_storm_of_refused_retries_is_one_breach_and_one_demand() -> None:
    made = ledger()
    for i in range(20):
        request = asked(made, float(i))
        made.refused(request, i + 0.01)
        made.close(request, i + 0.02)
    assert made.demand.tokens_total == 100
    assert [
        (e.arrivals_total, e.rejected_total, e.breaches_total, e.undecided_total) for e in made.classes
    ] == [(20, 20, 1, 0)]
    made.refused(asked(made, 20.0, client="you"), 20.01, uncached_tokens=7)
    assert made.demand.tokens_total == 107
    retry = asked(made, 21.0)
    made.first_content(retry, 21.1)
    made.explained(retry, 0.1, 0.0, Stamps(prompt_tokens=90))
    assert made.demand.tokens_total == 107, "it was counted when it was refused"


def test_who_left_wanted_its_answer_but_an_error_is_no_work() -> None:
    made = ledger()
    left, failed, waiting = asked(made, 0.0), asked(made, 0.0, b"2"), asked(made, 0.0, b"3")
    left.sent(0.01)
    failed.sent(0.01)
    failed.has_failed = True
    for request in (left, failed, waiting):
        made.close(request, 0.1)
    assert made.demand.tokens_total == 100


def test_prompt_lengths_are_learned() -> None:
    made = ledger()
    for i in range(200):
        request = asked(made, float(i), str(i).encode())
        made.first_content(request, i + 0.1)
        made.explained(request, 0.1, 0.0, Stamps(prompt_tokens=250, cached_tokens=200))
    assert made.calibration.bytes_per_token("m") == pytest.approx(2.0, rel=0.05)


def test_who_joins_an_equal_request_asks_for_no_more_work() -> None:
    made = ledger()
    leads, follows, leaves = (asked(made, 0.0) for _ in range(3))
    follows.is_joined = leaves.is_joined = True
    for request in (leads, follows):
        made.first_content(request, 0.1)
        made.explained(request, 0.1, 0.0, Stamps(prompt_tokens=90))
    leaves.sent(0.0)
    made.close(leaves, 0.05)
    assert made.demand.tokens_total == 90
    assert counted(made, "", "", "false") == 2, "each has a first token of its own"
