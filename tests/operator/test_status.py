"""What is said of a service, and that nothing is said anew at rest."""

import json
from typing import Any

import pytest

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_api.conditions import Condition
from firsttoken_api.reasons import Reason
from firsttoken_api.resolved import ResolveFailure
from firsttoken_api.state import Phase, TtftWindow
from firsttoken_api.status import FlagGeneration, InferenceServiceStatus, Revisions, SloStatus
from firsttoken_operator import flags, plan, status
from firsttoken_operator.observed import Bump, Cause, FlagsMark, Observed, Pod

SERVICE = build.service()
FIRST = build.revision(SERVICE)
HASH = flags.document(flags.decide((), frozenset()), SERVICE.spec.slo, 1).hash
ALL_FLAGS = ("paged-kv", "continuous-batching", "chunked-prefill")


def ready_pod(name: str = "chat-1", **state: Any) -> Pod:
    known = build.sidecar_state(1, HASH, enabled=ALL_FLAGS, **state)
    return build.pod(name, revision=FIRST.name, state=known)


def observed(*pods: Pod, service: Any = SERVICE, **fields: Any) -> Observed:
    known: dict[str, Any] = {
        "pods": pods,
        "revisions": (FIRST,),
        "deployments": (build.deployment(FIRST, 1),),
        "documents": (build.document(FIRST, 1, HASH),),
        "previous": InferenceServiceStatus(
            revisions=Revisions(stable=FIRST.name),
            flag_generation=FlagGeneration(desired=1, applied=1),
        ),
    }
    return build.observed(service, **{**known, **fields})


def report(
    seen: Observed, conflicts: tuple[str, ...] = (), refusals: tuple[str, ...] = ()
) -> InferenceServiceStatus:
    made = plan.make(seen, build.IMAGES, frozenset(), NOW)
    return status.build(seen, made, conflicts, refusals, NOW)[0]


def conditions(seen: Observed, **found: tuple[str, ...]) -> dict[str, Condition]:
    return {each.type: each for each in report(seen, **found).conditions}


def brief(condition: Condition) -> tuple[str, str]:
    return condition.status.value, condition.reason


def test_a_serving_service() -> None:
    said = report(observed(ready_pod()))
    found = {each.type: brief(each) for each in said.conditions}
    assert found["SpecAccepted"] == ("True", "Accepted")
    assert found["Ready"] == ("True", "Serving")
    assert found["Progressing"] == ("False", "Complete")
    assert found["ModelResolved"] == ("True", "Resolved")
    assert found["Schedulable"] == ("True", "Scheduled")
    assert found["FlagsApplied"] == ("True", "Applied")
    assert found["MetricsAvailable"] == ("True", "Scraped")
    assert found["NameConflict"] == ("False", "NoConflict")
    assert found["UpdateAvailable"] == ("False", "UpToDate")
    assert found["ImagePinned"] == ("False", "ImageNotPinned")
    assert "GatePassed" not in found
    assert said.replicas.total == said.replicas.ready == 1
    assert said.flags == "3/3"
    assert said.flag_generation == FlagGeneration(desired=1, applied=1)
    assert said.resolved is not None
    assert said.resolved.max_model_len == 2_048
    assert said.observed_generation == 3


def test_at_rest_the_status_is_the_same_again() -> None:
    first = report(observed(ready_pod()))
    again = observed(ready_pod(), previous=first)
    made = plan.make(again, build.IMAGES, frozenset(), NOW + 3_600)
    second, _ = status.build(again, made, (), (), NOW + 3_600)
    assert status.to_wire(second) == status.to_wire(first)


def test_the_selector_is_there_from_the_first_status_on() -> None:
    said = report(build.observed(SERVICE))
    assert said.selector == f"{names.LABEL_SERVICE}=chat,{names.LABEL_ROLE}={names.ROLE_SERVING}"
    assert said.replicas.total == 0


def test_transition_times_move_only_with_the_status() -> None:
    first = report(observed(ready_pod()))
    down = observed(build.pod(revision=FIRST.name, ready=False), previous=first)
    made = plan.make(down, build.IMAGES, frozenset(), NOW + 60)
    second = {each.type: each for each in status.build(down, made, (), (), NOW + 60)[0].conditions}
    before = {each.type: each for each in first.conditions}
    assert second["Ready"].last_transition_time != before["Ready"].last_transition_time
    assert second["SpecAccepted"].last_transition_time == before["SpecAccepted"].last_transition_time


def test_the_cause_is_told_where_people_look() -> None:
    cause = Cause(Reason.UNSCHEDULABLE, "chat-1: 1 Insufficient nvidia.com/gpu")
    pending = build.pod(revision=FIRST.name, ready=False, cause=cause)
    found = conditions(observed(pending))
    for name in ("Ready", "Schedulable"):
        assert brief(found[name]) == ("False", "Unschedulable")
        assert "Insufficient" in found[name].message
    assert brief(found["Progressing"]) == ("True", "Unschedulable")
    assert report(observed(pending)).replicas.stuck == 1


def test_an_engine_that_failed_is_no_scheduling_matter() -> None:
    cause = Cause(Reason.ENGINE_FAILED, "engine of chat-1: ModelUnreadable: damaged")
    found = conditions(observed(build.pod(revision=FIRST.name, ready=False, cause=cause)))
    assert brief(found["Ready"]) == ("False", "EngineFailed")
    assert brief(found["Schedulable"]) == ("True", "Scheduled")


def test_loading_is_told_apart_from_starting() -> None:
    loading = build.pod(revision=FIRST.name, ready=False, state=build.sidecar_state(0, phase=Phase.LOADING))
    assert brief(conditions(observed(loading))["Ready"]) == ("False", "Loading")
    starting = build.pod(revision=FIRST.name, ready=False)
    assert brief(conditions(observed(starting))["Ready"]) == ("False", "Starting")


def test_a_missing_model() -> None:
    failure = ResolveFailure(reason="ChecksumMismatch", message="is b179c952")
    job = build.resolver(SERVICE, answer=failure, finished_s=NOW)
    found = conditions(build.observed(SERVICE, resolvers=(job,)))
    assert brief(found["ModelResolved"]) == ("False", "ChecksumMismatch")
    assert "b179c952" in found["ModelResolved"].message
    assert brief(found["Ready"]) == ("False", "WaitingForModel")
    assert brief(found["Progressing"]) == ("False", "WaitingForModel")


def test_what_is_not_built_names_the_field_and_keeps_what_was_known() -> None:
    before = report(observed(ready_pod()))
    service = build.service(routing={"strategy": "PrefixAware"})
    found = conditions(observed(ready_pod(), service=service, previous=before))
    assert brief(found["SpecAccepted"]) == ("False", "NotBuilt")
    assert "spec.routing.strategy" in found["SpecAccepted"].message
    assert brief(found["ModelResolved"]) == ("True", "Resolved")
    assert brief(found["Ready"]) == ("True", "Serving")


def test_paused_and_suspended() -> None:
    paused = build.service({names.ANNOTATION_PAUSED: "true"})
    found = conditions(observed(ready_pod(), service=paused))
    assert brief(found["Progressing"]) == ("False", "Paused")
    assert brief(found["Ready"]) == ("True", "Serving")
    found = conditions(observed(service=build.service(suspend=True)))
    assert brief(found["Ready"]) == ("False", "Suspended")


def test_conflicts_and_refusals() -> None:
    found = conditions(observed(ready_pod()), conflicts=("Service chat exists",))
    assert brief(found["NameConflict"]) == ("True", "NameConflict")
    found = conditions(observed(ready_pod()), refusals=("nodePort is taken",))
    assert brief(found["Progressing"]) == ("False", "CreateFailed")
    assert "nodePort" in found["Progressing"].message


def test_flags_on_their_way_stuck_and_refused() -> None:
    service = build.service(optimizations=[{"name": "chunked-prefill", "mode": "Disabled"}])
    found = conditions(observed(ready_pod(), service=service))
    assert brief(found["FlagsApplied"]) == ("False", "Applying")

    def marked(since_s: float, error: str = "") -> Pod:
        return build.pod(
            "chat-9",
            revision=FIRST.name,
            state=build.sidecar_state(1, HASH, error=error),
            mark=FlagsMark(2, 1),
            bump=Bump(2, NOW - since_s, NOW - since_s),
        )

    decisions = flags.decide(service.spec.optimizations, frozenset())
    newest = flags.document(decisions, service.spec.slo, 2)
    written = (build.document(FIRST, 2, newest.hash),)
    stuck = conditions(observed(marked(40), service=service, documents=written))["FlagsApplied"]
    assert brief(stuck) == ("False", "Applying")
    assert "chat-9" in stuck.message
    assert "30 s" in stuck.message
    refusing = observed(marked(3, "chunkTokens too small"), service=service, documents=written)
    refused = conditions(refusing)["FlagsApplied"]
    assert brief(refused) == ("False", "RejectedByEngine")
    assert "chunkTokens too small" in refused.message


def test_gated_flags_say_that_nothing_judges_them() -> None:
    service = build.service(optimizations=[{"name": "chunked-prefill", "mode": "Gated"}])
    said = report(observed(ready_pod(), service=service))
    (row,) = [each for each in said.optimizations if each.name == "chunked-prefill"]
    assert (row.effective, row.reason, row.requested) == (False, "NotJudged", "Gated")
    assert "GatePassed" in {each.type for each in said.conditions}


def test_unreadable_replicas_are_named() -> None:
    pod = build.pod("chat-3", revision=FIRST.name, failed_scrapes=3)
    found = conditions(observed(pod))["MetricsAvailable"]
    assert brief(found) == ("False", "ScrapeFailed")
    assert "chat-3" in found.message
    one_failure = build.pod("chat-3", revision=FIRST.name, failed_scrapes=1)
    assert brief(conditions(observed(one_failure))["MetricsAvailable"])[0] != "False"


def test_a_candidate_shows_under_progressing() -> None:
    service = build.service(resources={"cpu": "2", "memory": "2Gi"})
    second = build.revision(service, number=2)
    seen = observed(
        ready_pod(),
        build.pod("new", revision=second.name, ready=False, cause=Cause(Reason.UNSCHEDULABLE, "no room")),
        service=service,
        revisions=(FIRST, second),
        deployments=(build.deployment(FIRST, 1), build.deployment(second, 1)),
    )
    found = conditions(seen)
    assert brief(found["Progressing"]) == ("True", "RollingOut")
    assert "no room" in found["Progressing"].message
    assert brief(found["Ready"]) == ("True", "Serving")
    said = report(seen).revisions
    assert said is not None
    assert (said.stable, said.candidate) == (FIRST.name, second.name)


def test_an_update_on_offer() -> None:
    seen = observed(ready_pod())
    made = plan.make(seen, build.OTHER_IMAGES, frozenset(), NOW)
    found = {each.type: each for each in status.build(seen, made, (), (), NOW)[0].conditions}
    assert brief(found["UpdateAvailable"]) == ("True", "NewRendering")
    assert names.ANNOTATION_REFRESH in found["UpdateAvailable"].message


def test_an_unreadable_spec_changes_one_condition() -> None:
    before = report(observed(ready_pod()))
    after = status.unreadable(before, 9, "chat", "spec.model: Field required", NOW)
    found = {each.type: each for each in after.conditions}
    assert brief(found["SpecAccepted"]) == ("False", "InvalidSpec")
    assert found["SpecAccepted"].observed_generation == 9
    assert brief(found["Ready"]) == ("True", "Serving")


# status.slo


def window(*counts: int) -> TtftWindow:
    return TtftWindow(window_s=300, slo_s=0.5, edges_s=(0.1, 0.5, 1.0), counts=counts)


def measured(
    before: str | None,
    counts: tuple[int, ...],
    arrivals: int = 100,
    looked_at: tuple[int, int] | None = (1, 0),
    written_ago_s: float | None = None,
) -> status.Slo:
    previous = InferenceServiceStatus(slo=SloStatus(ttft_p95=before) if before else None)
    seen = observed(
        ready_pod(ttft=window(*counts), arrivals=arrivals),
        previous=previous,
        traffic_at_slo=looked_at,
        slo_written_s=None if written_ago_s is None else NOW - written_ago_s,
    )
    return status.measured(seen, NOW)


def text(slo: status.Slo) -> str | None:
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


def test_the_objective_is_judged_by_what_is_written() -> None:
    previous = InferenceServiceStatus(slo=SloStatus(ttft_p95="900ms"))
    found = conditions(observed(ready_pod(), previous=previous))["SLOAttainable"]
    assert brief(found) == ("False", "OverObjective")


def test_the_status_stays_under_sixteen_kilobytes() -> None:
    cause = Cause(Reason.UNSCHEDULABLE, "x" * 20_000)
    pods = [build.pod(f"p{n}", revision=FIRST.name, ready=False, cause=cause) for n in range(50)]
    said = report(observed(*pods), conflicts=tuple("y" * 500 for _ in range(20)), refusals=("z" * 20_000,))
    assert len(json.dumps(status.to_wire(said)).encode()) < 16 * 1024
    assert all(len(each.message) <= status.LONGEST_MESSAGE for each in said.conditions)
