"""Whole plans: which actions, in which order, for the situations of a service's life."""

import dataclasses
from typing import Any

import pytest

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_api.conditions import Condition, ConditionStatus
from firsttoken_api.reasons import Reason
from firsttoken_api.status import FlagGeneration, InferenceServiceStatus, Revisions
from firsttoken_operator import flags, kinds, plan
from firsttoken_operator.observed import Bump, Cause, FlagsMark, Observed, Pod

SERVICE = build.service()
FIRST = build.revision(SERVICE)


def make(observed: Observed, images: Any = build.IMAGES, off: frozenset[str] = frozenset()) -> plan.Plan:
    return plan.make(observed, images, off, NOW)


def names_of(made: plan.Plan, kind: type[plan.Action]) -> list[str]:
    """`Kind/name` of the actions of a type, in order."""
    found = []
    for action in made.actions:
        if isinstance(action, kind):
            if isinstance(action, plan.Create | plan.Ensure):
                found.append(f"{action.body['kind']}/{action.body['metadata']['name']}")
            elif isinstance(action, plan.Delete):
                found.append(f"{action.kind.name}/{action.name}")
            else:
                found.append(f"{action.pod.name}={action.mark.text}")
    return found


def replicas(made: plan.Plan) -> dict[str, int]:
    return {
        action.body["metadata"]["labels"][names.LABEL_REVISION]: action.body["spec"]["replicas"]
        for action in made.actions
        if isinstance(action, plan.Ensure) and action.body["kind"] == "Deployment"
    }


def content_hash(service: Any) -> str:
    return flags.document(flags.decide(service.spec.optimizations, frozenset()), service.spec, 1).hash


def status(
    stable: str = "", candidate: str = "", generation: int = 1, **fields: Any
) -> InferenceServiceStatus:
    return InferenceServiceStatus(
        revisions=Revisions(stable=stable, candidate=candidate, **fields),
        flag_generation=FlagGeneration(desired=generation, applied=generation),
    )


def running(service: Any = SERVICE, count: int = 1, **fields: Any) -> Observed:
    """A service whose first revision serves, with everything in place."""
    digest = content_hash(service)
    pods = tuple(
        build.pod(f"{n}", revision=FIRST.name, state=build.sidecar_state(1, digest)) for n in range(count)
    )
    known: dict[str, Any] = {
        "pods": pods,
        "revisions": (FIRST,),
        "deployments": (build.deployment(FIRST, count),),
        "documents": (build.document(FIRST, 1, digest),),
        "previous": status(FIRST.name),
    }
    return build.observed(service, **{**known, **fields})


def test_a_new_service_gets_its_services_and_a_resolver_but_no_pods() -> None:
    made = make(build.observed(SERVICE))
    assert made.resolution is not None
    assert names_of(made, plan.Create) == [f"Job/{made.resolution.job_name}"]
    assert names_of(made, plan.Ensure) == ["Service/chat", "Service/chat-peers", "PodDisruptionBudget/chat"]
    assert made.generation == 1


def test_a_resolved_model_becomes_flags_a_record_and_pods_in_this_order() -> None:
    job = build.resolver(SERVICE, answer=build.model(), finished_s=NOW)
    made = make(build.observed(SERVICE, resolvers=(job,)))
    revision = f"chat-{FIRST.name}"
    kinds_in_order = [
        f"{a.body['kind']}/{a.body['metadata']['name']}"
        for a in made.actions
        if isinstance(a, plan.Create | plan.Ensure)
    ]
    assert kinds_in_order[:3] == [
        f"ConfigMap/{revision}-flags",
        f"ControllerRevision/{revision}",
        f"Deployment/{revision}",
    ]
    assert replicas(made) == {FIRST.name: 1}


def test_at_rest_the_plan_states_the_same_and_deletes_nothing() -> None:
    made = make(running())
    assert names_of(made, plan.Delete) == []
    assert names_of(made, plan.Mark) == []
    assert names_of(made, plan.Create) == []
    assert made.generation == 1
    assert make(running()) == made


def test_the_recorded_template_is_applied_not_a_new_rendering() -> None:
    made = make(running(), images=build.OTHER_IMAGES)
    (deployment,) = [
        a.body for a in made.actions if isinstance(a, plan.Ensure) and a.body["kind"] == "Deployment"
    ]
    assert deployment["spec"]["template"] == FIRST.template
    assert made.choice.update_available


def test_a_patched_flag_is_a_new_generation_and_the_first_pod_is_marked_after_the_document() -> None:
    service = build.service(optimizations=[{"name": "chunked-prefill", "mode": "Disabled"}])
    observed = running(count=2)
    changed = build.observed(
        service,
        pods=observed.pods,
        revisions=observed.revisions,
        deployments=observed.deployments,
        documents=observed.documents,
        previous=observed.previous,
    )
    made = make(changed)
    assert made.generation == 2
    assert names_of(made, plan.Mark) == ["0=2.1"]
    first = made.actions[0]
    assert isinstance(first, plan.Ensure)
    assert first.body["kind"] == "ConfigMap"
    assert isinstance(made.actions[1], plan.Mark)


def test_scaling_changes_nothing_but_replicas() -> None:
    service = build.service(scaling={"mode": "Fixed", "replicas": 4})
    made = make(running(service))
    assert replicas(made) == {FIRST.name: 4}
    assert made.generation == 1


def test_suspended() -> None:
    assert replicas(make(running(build.service(suspend=True)))) == {FIRST.name: 0}


OTHER = build.service(resources={"cpu": "2", "memory": "2Gi"})
SECOND = build.revision(OTHER, number=2)


def rolling(second_ready: int, first_replicas: int, **fields: Any) -> Observed:
    digest = content_hash(OTHER)
    pods = [
        build.pod(f"old-{n}", revision=FIRST.name, state=build.sidecar_state(1, digest))
        for n in range(first_replicas)
    ]
    pods.append(
        build.pod(
            "new-0",
            revision=SECOND.name,
            ready=bool(second_ready),
            state=build.sidecar_state(1, digest) if second_ready else None,
            changed_s=NOW - 100,
        )
    )
    known: dict[str, Any] = {
        "pods": tuple(pods),
        "revisions": (FIRST, SECOND),
        "deployments": (build.deployment(FIRST, first_replicas), build.deployment(SECOND, 1)),
        "documents": (build.document(FIRST, 1, digest), build.document(SECOND, 1, digest)),
        "previous": status(FIRST.name, SECOND.name),
    }
    return build.observed(OTHER, **{**known, **fields})


def test_a_rollout_waits_for_the_candidate_then_gives_up_the_stable_one() -> None:
    assert replicas(make(rolling(second_ready=0, first_replicas=1))) == {SECOND.name: 1, FIRST.name: 1}
    assert replicas(make(rolling(second_ready=1, first_replicas=1))) == {SECOND.name: 1, FIRST.name: 0}


def test_a_complete_candidate_is_promoted() -> None:
    made = make(rolling(second_ready=1, first_replicas=0))
    assert (made.choice.stable, made.choice.candidate) == (SECOND.name, "")
    assert f"Deployment/chat-{FIRST.name}" in names_of(made, plan.Delete)
    assert f"ConfigMap/chat-{FIRST.name}-flags" not in names_of(made, plan.Delete)  # the Deployment first
    assert names_of(made, plan.Ensure)[0] == f"ConfigMap/chat-{SECOND.name}-flags"


def test_both_revisions_share_one_generation_of_flags() -> None:
    made = make(rolling(second_ready=0, first_replicas=1))
    assert [name for name in names_of(made, plan.Ensure) if name.startswith("ConfigMap/")] == [
        f"ConfigMap/chat-{SECOND.name}-flags",
        f"ConfigMap/chat-{FIRST.name}-flags",
    ]


def test_a_candidate_past_its_deadline_is_taken_back_and_the_stable_one_stays() -> None:
    observed = rolling(second_ready=0, first_replicas=1)
    late = build.observed(
        build.service(resources={"cpu": "2", "memory": "2Gi"}, rollout={"progressDeadline": "1m"}),
        pods=observed.pods,
        revisions=observed.revisions,
        deployments=observed.deployments,
        documents=observed.documents,
        previous=observed.previous,
    )
    made = make(late)
    assert made.choice.rejected == (SECOND.name,)
    assert (made.choice.target, made.choice.candidate) == (FIRST.name, "")
    assert replicas(made) == {FIRST.name: 1, SECOND.name: 0}
    assert SECOND.name in made.overdue


@pytest.mark.parametrize("kept", [True, False])
def test_a_revision_that_is_asked_for_again_is_still_refused_and_said_why(kept: bool) -> None:
    taken_back = make(
        rolling(0, 1, pods=(build.pod("b", revision=SECOND.name, ready=False, changed_s=NOW - 2_000),))
    ).overdue
    known = Condition(
        type="Progressing",
        status=ConditionStatus.FALSE,
        reason=Reason.DEADLINE_EXCEEDED if kept else Reason.COMPLETE,
        message=taken_back if kept else f"revision {FIRST.name} serves",
        last_transition_time="2027-01-15T08:00:00Z",
    )
    previous = status(FIRST.name, rejected=(SECOND.name,)).model_copy(update={"conditions": (known,)})
    made = make(rolling(0, 0, previous=previous))
    assert made.choice.refused == SECOND.name
    assert f"revision {SECOND.name} was taken back" in made.overdue
    assert names.ANNOTATION_REFRESH in made.overdue
    assert ("b is not ready" in made.overdue) is kept


def test_the_first_revision_has_nothing_to_go_back_to() -> None:
    service = build.service(rollout={"progressDeadline": "1m"})
    pods = (build.pod("a", revision=FIRST.name, ready=False, changed_s=NOW - 100),)
    made = make(running(service, pods=pods))
    assert made.choice.rejected == ()
    assert replicas(made) == {FIRST.name: 1}
    assert made.overdue


def test_what_is_not_built_changes_nothing() -> None:
    service = build.service(rollout={"soak": "5m"}, scaling={"mode": "Fixed", "replicas": 3})
    made = make(running(service))
    assert made.actions == ()
    assert any("spec.rollout.soak" in message for message in made.not_built)


def test_paused_only_looks() -> None:
    made = make(running(build.service({names.ANNOTATION_PAUSED: "true"}, suspend=True)))
    assert made.actions == ()
    assert made.is_paused


@pytest.mark.parametrize(
    "held",
    [
        build.service({names.ANNOTATION_PAUSED: "true"}),
        build.service(rollout={"soak": "5m"}),
    ],
)
def test_what_is_held_back_is_not_waited_for(held: Any) -> None:
    overdue = [
        build.pod(
            f"chat-{n}",
            FIRST.name,
            state=build.sidecar_state(1, "other"),
            mark=FlagsMark(2, 4),
            bump=Bump(2, NOW - 300, NOW - 100),
        )
        for n in (1, 2)
    ]
    documents = (build.document(FIRST, 2, content_hash(SERVICE)),)
    made = make(running(held, pods=tuple(overdue), documents=documents))
    assert made.progress.behind != ()
    assert (made.progress.mark, made.progress.watch, made.again_after_s) == (None, (), None)


def test_no_pods_are_made_for_a_model_that_is_missing() -> None:
    job = build.resolver(SERVICE, cause=Cause(Reason.CLAIM_NOT_FOUND, "no claim"))
    made = make(build.observed(SERVICE, resolvers=(job,)))
    assert replicas(made) == {}
    assert names_of(made, plan.Create) == []


def test_nothing_is_written_to_a_name_that_is_taken() -> None:
    made = make(running(foreign={("Service", "chat"): "Helm"}))
    assert "Service/chat" not in names_of(made, plan.Ensure)
    assert "Service/chat-peers" in names_of(made, plan.Ensure)
    (conflict,) = made.conflicts
    assert "Service chat" in conflict


def test_old_records_and_jobs_are_cleaned_up_to_the_limit() -> None:
    services = [build.service(resources={"cpu": str(n), "memory": "2Gi"}) for n in range(2, 6)]
    old = [build.revision(each, number=n) for n, each in enumerate(services, start=2)]
    service = build.service(rollout={"revisionHistoryLimit": 2})
    stale = build.resolver(build.service(model={"source": "pvc://models/old.gguf"}))
    made = make(running(service, revisions=(FIRST, *old), resolvers=(stale,)))
    deleted = names_of(made, plan.Delete)
    assert f"Job/{stale.name}" in deleted
    assert [name for name in deleted if name.startswith("Controller")] == [
        f"ControllerRevision/chat-{old[1].name}",
        f"ControllerRevision/chat-{old[0].name}",
    ]


def test_a_revision_without_a_record_is_moved_away_with_the_template_it_has() -> None:
    """Its ControllerRevision was deleted by hand, and this operator renders differently."""
    lost = dataclasses.replace(build.deployment(FIRST, 1), template={"spec": "as it is"})
    job = build.resolver(SERVICE, answer=build.model(), finished_s=NOW)
    made = make(running(revisions=(), deployments=(lost,), resolvers=(job,)), images=build.OTHER_IMAGES)
    assert made.choice.create is not None
    bodies = [a.body for a in made.actions if isinstance(a, plan.Ensure) and a.body["kind"] == "Deployment"]
    templates = {body["metadata"]["name"]: body["spec"]["template"] for body in bodies}
    assert templates[f"chat-{FIRST.name}"] == {"spec": "as it is"}
    assert replicas(made) == {made.choice.target: 1, FIRST.name: 1}


def test_deletions_name_the_very_object() -> None:
    made = make(rolling(second_ready=1, first_replicas=0))
    (deletion,) = [a for a in made.actions if isinstance(a, plan.Delete) and a.kind is kinds.DEPLOYMENT]
    assert deletion.uid == f"uid-deployment-{FIRST.name}"


@pytest.mark.parametrize("surge", [0, 1])
def test_without_spare_capacity_one_is_given_up_first(surge: int) -> None:
    service = build.service(
        resources={"cpu": "2", "memory": "2Gi"}, rollout={"maxSurge": surge, "maxUnavailable": 1 - surge}
    )
    job = build.resolver(service, answer=build.model(), finished_s=NOW)
    made = make(running(service, resolvers=(job,)))
    expected = {0: {SECOND.name: 0, FIRST.name: 0}, 1: {SECOND.name: 1, FIRST.name: 1}}
    assert replicas(made) == expected[surge]


@pytest.mark.parametrize(
    ("surge", "ends_in_s", "expected"),
    [
        (0, 60, 0),  # the drain may take longer than the candidate's deadline: it has not begun
        (0, -1, 1),  # not gone in time: lost with its node
        (1, 60, 1),
    ],
)
def test_without_surge_the_candidate_gets_the_place_that_has_been_left(
    surge: int, ends_in_s: float, expected: int
) -> None:
    service = build.service(
        resources={"cpu": "2", "memory": "2Gi"}, rollout={"maxSurge": surge, "maxUnavailable": 1}
    )
    drains = dataclasses.replace(build.pod("old", revision=FIRST.name, deleting=True), ends_s=NOW + ends_in_s)
    made = make(
        running(
            service,
            pods=(drains,),
            revisions=(FIRST, SECOND),
            deployments=(build.deployment(FIRST, 0), build.deployment(SECOND, 0)),
            previous=status(FIRST.name, SECOND.name),
        )
    )
    assert replicas(made)[SECOND.name] == expected
    assert (made.again_after_s == 60) is (ends_in_s > 0)


def test_fleet_wide_switches_are_hot() -> None:
    made = make(running(), off=frozenset({"chunked-prefill"}))
    assert made.generation == 2
    assert made.choice.create is None


def test_a_pod_that_keeps_a_flag_on_is_deleted_and_one_at_a_time() -> None:
    service = build.service(optimizations=[{"name": "chunked-prefill", "mode": "Disabled"}])

    def keeping(name: str) -> Pod:
        return build.pod(
            name,
            revision=FIRST.name,
            ready=False,
            state=build.sidecar_state(1, "old", enabled=("chunked-prefill",)),
            mark=FlagsMark(2, 4),
            bump=Bump(2, NOW - 31, NOW - 1),
        )

    written = (build.document(FIRST, 2, content_hash(service)),)
    pods = keeping("a"), keeping("b")
    made = make(running(service, pods=pods, documents=written))
    assert [(a.kind.name, a.uid) for a in made.actions if isinstance(a, plan.Delete)] == [
        ("Pod", pods[0].uid)
    ]
    leaving = dataclasses.replace(pods[0], deleting=True, ends_s=NOW + 60)
    made = make(running(service, pods=(leaving, pods[1]), documents=written))
    assert names_of(made, plan.Delete) == []
    paused = build.service(
        {names.ANNOTATION_PAUSED: "true"}, optimizations=[{"name": "chunked-prefill", "mode": "Disabled"}]
    )
    assert make(running(paused, pods=pods, documents=written)).actions == ()
