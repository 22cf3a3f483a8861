"""What `status.slo` says, and what is news."""

from dataclasses import replace

import pytest

from builders.observed import NOW
from builders.reported import observed, ready_pod
from firsttoken_api.state import EngineState, Phase, TtftWindow
from firsttoken_api.status import InferenceServiceStatus, SloStatus
from firsttoken_operator import slo
from firsttoken_operator.slo import Slo


def window(*counts: int) -> TtftWindow:
    return TtftWindow(window_s=300, slo_s=0.5, edges_s=(0.1, 0.5, 1.0), counts=counts)


def measured(
    before: str | None,
    counts: tuple[int, ...],
    arrivals: int = 100,
    looked_at: tuple[int, int] | None = (1, 0),
    written_ago_s: float | None = None,
) -> Slo:
    previous = InferenceServiceStatus(slo=SloStatus(ttft_p95=before) if before else None)
    seen = observed(
        ready_pod(ttft=window(*counts), arrivals=arrivals),
        previous=previous,
        traffic_at_slo=looked_at,
        slo_written_s=None if written_ago_s is None else NOW - written_ago_s,
    )
    return slo.measured(seen, NOW)


def text(slo: Slo) -> str | None:
    return slo.value.ttft_p95 if slo.value else None


@pytest.mark.parametrize("odd", ["fastms", "", "ms", "-3ms", "0.5s"])
def test_what_somebody_else_wrote_there_is_replaced(odd: str) -> None:
    slo = measured(odd, (0, 100, 0, 0), arrivals=1)
    assert (text(slo), slo.is_news) == ("480ms", True)


def test_the_first_measurement_is_news() -> None:
    slo = measured(None, (0, 100, 0, 0))
    assert slo.is_news
    assert text(slo) == "480ms"
    assert slo.value is not None
    assert slo.value.breach_fraction == "0.00"


@pytest.mark.parametrize(
    ("paces_s", "expected"),
    [
        ((0.04, 0.0512), "51ms"),
        ((0.0, 0.0001), "1ms"),
        ((0.0, 0.0), None),
        ((None, 0.02), "20ms"),
        ((1e300,), None),
    ],
)
def test_the_pace_of_the_slowest_replica_is_written_along(
    paces_s: tuple[float | None, ...], expected: str | None
) -> None:
    pods = []
    for number, pace_s in enumerate(paces_s):
        pod = ready_pod(f"chat-{number}", ttft=window(0, 100, 0, 0))
        assert pod.state is not None
        engine = EngineState(phase=Phase.READY, tpot_p95_s=pace_s) if pace_s is not None else None
        pods.append(replace(pod, state=pod.state.model_copy(update={"engine": engine})))
    found = slo.measured(observed(*pods, previous=InferenceServiceStatus()), NOW).value
    assert found is not None
    assert found.tpot_p95 == expected


def test_past_the_last_bucket_is_said() -> None:
    assert text(measured(None, (0, 0, 0, 9))) == ">1000ms"


def test_without_new_requests_an_ageing_window_is_no_news() -> None:
    slo = measured("200ms", (0, 100, 0, 0), arrivals=100, looked_at=(100, 0))
    assert (text(slo), slo.is_news) == ("200ms", False)
    assert text(measured("200ms", (0, 0, 0, 0))) == "200ms"


def test_a_new_leader_keeps_what_is_written_until_requests_come() -> None:
    assert text(measured("200ms", (0, 100, 0, 0), looked_at=None)) == "200ms"


def test_crossing_the_objective_is_news_at_once() -> None:
    service_objective_ms = 500
    slo = measured("480ms", (0, 0, 100, 0), written_ago_s=1)
    assert slo.is_news
    assert int((text(slo) or "0ms").removesuffix("ms")) > service_objective_ms


@pytest.mark.parametrize(
    ("before", "ago_s", "expected"),
    [
        ("470ms", 120, "470ms"),  # within a tenth
        ("300ms", 120, "480ms"),
        ("300ms", 20, "300ms"),  # held back until a minute has passed
    ],
)
def test_changes_are_written_once_a_minute_and_past_a_tenth(before: str, ago_s: float, expected: str) -> None:
    slo = measured(before, (0, 100, 0, 0), written_ago_s=ago_s)
    assert text(slo) == expected
    assert slo.again_after_s == (40.0 if ago_s == 20 else None)
