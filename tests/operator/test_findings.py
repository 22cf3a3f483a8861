"""What is said of a service, condition by condition."""

import dataclasses

from builders import observed as build
from builders.observed import NOW
from builders.reported import FIRST, HASH, SERVICE, brief, conditions, observed, ready_pod, report
from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_api.resolved import ResolveFailure
from firsttoken_api.state import Phase, SidecarState
from firsttoken_api.status import InferenceServiceStatus, SloStatus
from firsttoken_operator import flags, plan, status
from firsttoken_operator.observed import Bump, Cause, FlagsMark, Pod


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
    service = build.service(rollout={"soak": "5m"})
    found = conditions(observed(ready_pod(), service=service, previous=before))
    assert brief(found["SpecAccepted"]) == ("False", "NotBuilt")
    assert "spec.rollout.soak" in found["SpecAccepted"].message
    assert brief(found["ModelResolved"]) == ("True", "Resolved")
    assert brief(found["Ready"]) == ("True", "Serving")


def test_api_keys_that_cannot_be_used_are_told_with_their_entry() -> None:
    service = build.service(routing={"auth": {"secretRef": {"name": "chat-keys"}}})
    first = build.revision(service)

    def said(*states: SidecarState | None) -> tuple[str, str, str]:
        pods = [build.pod(f"chat-{number}", first.name, state=state) for number, state in enumerate(states)]
        found = conditions(build.observed(service, revisions=(first,), pods=tuple(pods)))
        return (*brief(found["AuthConfigInvalid"]), found["AuthConfigInvalid"].message)

    good = build.sidecar_state()
    bad = build.sidecar_state(auth_error="entry 2 (mobile): sha256 must be 64 hex digits")
    assert said(good, good) == ("False", "KeysInForce", "")
    assert said(None) == ("Unknown", "NoReplicas", "")
    status, reason, message = said(good, bad)
    assert (status, reason) == ("True", "KeysMalformed")
    assert message.startswith(
        "entry 2 (mobile): sha256 must be 64 hex digits (Secret chat-keys, key keys.yaml)"
    )


def test_without_api_keys_nothing_is_said_of_them() -> None:
    assert "AuthConfigInvalid" not in conditions(observed(ready_pod()))


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
    newest = flags.document(decisions, service.spec, 2)
    written = (build.document(FIRST, 2, newest.hash),)
    stuck = conditions(observed(marked(40), service=service, documents=written))["FlagsApplied"]
    assert brief(stuck) == ("False", "Applying")
    assert "chat-9" in stuck.message
    assert "30 s" in stuck.message
    keeping = marked(40)
    assert keeping.state is not None
    state = keeping.state.model_copy(
        update={"flags": keeping.state.flags.model_copy(update={"enabled": ("chunked-prefill", "paged-kv")})}
    )
    keeping = dataclasses.replace(keeping, state=state)
    kept = conditions(observed(keeping, service=service, documents=written))["FlagsApplied"]
    assert "chunked-prefill is still on there, so the pod is out of service and is deleted" in kept.message
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


def test_the_objective_is_judged_by_what_is_written() -> None:
    previous = InferenceServiceStatus(slo=SloStatus(ttft_p95="900ms"))
    found = conditions(observed(ready_pod(), previous=previous))["SLOAttainable"]
    assert brief(found) == ("False", "OverObjective")
