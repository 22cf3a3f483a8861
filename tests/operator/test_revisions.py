"""Only the user makes a new revision; an operator that renders differently offers one."""

import dataclasses
from typing import Any

import pytest

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_api.routing import RoutingSpec
from firsttoken_api.status import InferenceServiceStatus, Revisions
from firsttoken_operator import revisions
from firsttoken_operator.observed import Cause

SERVICE = build.service()
FIRST = build.revision(SERVICE)


def status(stable: str = "", candidate: str = "", rejected: tuple[str, ...] = ()) -> InferenceServiceStatus:
    return InferenceServiceStatus(revisions=Revisions(stable=stable, candidate=candidate, rejected=rejected))


def choose(service: Any, *known: Any, images: Any = build.IMAGES, **fields: Any) -> revisions.Choice:
    observed = build.observed(service, revisions=known, **fields)
    return revisions.choose(observed, build.rendering(service, images))


def test_the_first_revision_is_stable_from_the_start() -> None:
    choice = choose(SERVICE)
    assert choice.create is not None
    assert choice.target == choice.stable == choice.create.name
    assert choice.candidate == ""
    assert len(choice.target) == 10


@pytest.mark.parametrize(
    "change",
    [
        {"scaling": {"mode": "Fixed", "replicas": 5}},
        {"optimizations": [{"name": "paged-kv", "mode": "Disabled"}]},
        {"slo": {"ttftP95": "9s"}},
        {"slo": {"tpotP95": "40ms", "defaultClass": "a", "classes": [{"name": "a", "ttftP99": "1s"}]}},
        {"routes": [{"name": "intent", "maxTokens": 8}]},
        {"optimizations": [{"name": "length-control", "mode": "Forced"}]},
        {"optimizations": [{"name": "paged-kv", "mode": "Disabled", "params": {"blockSize": "16"}}]},
        {"optimizations": [{"name": "kv-int8", "mode": "Forced", "params": {"fullPrecisionLayers": "4"}}]},
        {"optimizations": [{"name": "prefix-cache", "mode": "Forced", "params": {"maxFraction": "0.25"}}]},
        {"optimizations": [{"name": "prefix-affinity", "mode": "Forced", "params": {"maxWait": "5ms"}}]},
        {"optimizations": [{"name": "kv-tiering", "mode": "Forced", "params": {"hostMemory": "auto"}}]},
        {"service": {"type": "NodePort"}},
        {"rollout": {"maxSurge": 3}},
        {"suspend": True},
        # What a default says may be said aloud.
        {"routing": {"strategy": "PrefixAware"}},
        {"runtime": {"device": "cpu", "maxNumSeqs": 64, "memoryFraction": "0.90"}},
    ],
)
def test_what_is_hot_makes_no_revision(change: dict[str, Any]) -> None:
    choice = choose(build.service(**change), FIRST, previous=status(FIRST.name))
    assert (choice.target, choice.create) == (FIRST.name, None)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": {"device": "cpu", "maxNumSeqs": 32}},
        {"runtime": {"device": "cpu", "image": "mine:1"}},
        {"runtime": {"device": "cpu", "prefillPriority": "low"}},
        {"optimizations": [{"name": "paged-kv", "mode": "Forced", "params": {"blockSize": "32"}}]},
        {"optimizations": [{"name": "paged-kv", "mode": "Disabled", "params": {"maxBlocks": "500"}}]},
        {"optimizations": [{"name": "kv-tiering", "mode": "Disabled", "params": {"hostMemory": "1Gi"}}]},
        {"optimizations": [{"name": "kv-tiering", "mode": "Forced", "params": {"claimName": "warm"}}]},
        {"resources": {"cpu": "2", "memory": "2Gi"}},
        {"cachePins": {"configMapRef": {"name": "pins"}}},
        {"drain": {"timeout": "5s"}},
        {"podTemplate": {"nodeSelector": {"zone": "a"}}},
        {"routing": {"strategy": "LeastBacklog"}},
        {"routing": {"strategy": "None"}},
        {"routing": {"auth": {"secretRef": {"name": "keys"}}}},
        {"model": {"source": "pvc://models/smollm2.gguf", "servedName": "other"}},
    ],
)
def test_what_is_cold_makes_a_candidate(change: dict[str, Any]) -> None:
    choice = choose(build.service(**change), FIRST, previous=status(FIRST.name))
    assert choice.create is not None
    assert choice.stable == FIRST.name
    assert choice.candidate == choice.create.name != FIRST.name


def test_other_content_under_the_same_name_is_another_revision() -> None:
    one = build.rendering(SERVICE)
    other = build.rendering(SERVICE, found=build.model(digest="sha256:" + "b" * 64))
    assert one.name != other.name
    assert one.intent_hash != other.intent_hash


def test_an_operator_that_renders_differently_changes_nothing_and_offers_it() -> None:
    choice = choose(SERVICE, FIRST, images=build.OTHER_IMAGES, previous=status(FIRST.name))
    assert (choice.target, choice.create, choice.update_available) == (FIRST.name, None, True)
    back = choose(SERVICE, FIRST, previous=status(FIRST.name))
    assert not back.update_available


def before_routing(of: Any) -> Any:
    """The record that a version without routing made of a service."""
    plain = of.spec.model_copy(update={"routing": RoutingSpec()})
    template = build.revision(build.service(routing={"strategy": "None"})).template
    made = build.revision(of.model_copy(update={"spec": plain}), images=build.OTHER_IMAGES)
    return dataclasses.replace(made, template=template)


@pytest.mark.parametrize("strategy", ["PrefixAware", "None"])
def test_a_version_that_brings_routing_replaces_no_pod(strategy: str) -> None:
    """Neither where the strategy is the default nor where it is what there was before."""
    service = build.service(routing={"strategy": strategy})
    older = before_routing(service)
    choice = choose(service, older, previous=status(older.name))
    assert (choice.target, choice.create) == (older.name, None)
    assert choice.update_available


@pytest.mark.parametrize("change", [{"strategy": "LeastBacklog"}, {"auth": {"secretRef": {"name": "keys"}}}])
def test_what_earlier_versions_could_not_do_makes_a_revision_also_of_theirs(change: dict[str, Any]) -> None:
    older = before_routing(SERVICE)
    choice = choose(build.service(routing=change), older, previous=status(older.name))
    assert choice.create is not None


def test_a_refresh_rolls_once_to_the_newest_rendering() -> None:
    asked = build.service({names.ANNOTATION_REFRESH: "1"})
    choice = choose(asked, FIRST, images=build.OTHER_IMAGES, previous=status(FIRST.name))
    assert choice.create is not None
    assert choice.candidate == choice.create.name
    second = build.revision(asked, number=2, images=build.OTHER_IMAGES)
    assert second.name == choice.create.name
    settled = choose(
        asked, FIRST, second, images=build.OTHER_IMAGES, previous=status(FIRST.name, second.name)
    )
    assert (settled.target, settled.create) == (second.name, None)
    removed = choose(SERVICE, FIRST, second, images=build.OTHER_IMAGES, previous=status(second.name))
    assert (removed.target, removed.create, removed.update_available) == (second.name, None, False)


def test_a_refresh_rolls_even_if_nothing_is_rendered_differently() -> None:
    asked = build.service({names.ANNOTATION_REFRESH: "1"})
    assert choose(asked, FIRST, previous=status(FIRST.name)).candidate


def test_auto_update_rolls_without_being_asked() -> None:
    service = build.service(rollout={"autoUpdate": True})
    choice = choose(service, FIRST, images=build.OTHER_IMAGES, previous=status(FIRST.name))
    assert choice.candidate


def test_going_back_finds_the_old_revision_and_its_template() -> None:
    other = build.service(resources={"cpu": "2", "memory": "2Gi"})
    second = build.revision(other, number=2)
    choice = choose(SERVICE, FIRST, second, images=build.OTHER_IMAGES, previous=status(second.name))
    assert (choice.target, choice.create) == (FIRST.name, None)
    assert choice.stable == second.name


def test_a_rejected_revision_is_not_tried_again_by_itself() -> None:
    other = build.service(resources={"cpu": "2", "memory": "2Gi"})
    second = build.revision(other, number=2)
    before = status(FIRST.name, rejected=(second.name,))
    choice = choose(other, FIRST, second, previous=before)
    assert (choice.target, choice.stable, choice.refused) == (FIRST.name, FIRST.name, second.name)
    again = build.service({names.ANNOTATION_REFRESH: "try"}, resources={"cpu": "2", "memory": "2Gi"})
    assert choose(again, FIRST, second, previous=before).candidate not in ("", second.name)


def test_a_lost_status_is_found_again_from_what_serves() -> None:
    other = build.service(resources={"cpu": "2", "memory": "2Gi"})
    second = build.revision(other, number=2)
    pods = (build.pod("a", revision=FIRST.name), build.pod("b", revision=second.name, ready=False))
    choice = choose(other, FIRST, second, pods=pods)
    assert (choice.stable, choice.candidate) == (FIRST.name, second.name)


def test_without_a_model_what_runs_goes_on() -> None:
    observed = build.observed(SERVICE, revisions=(FIRST,), previous=status(FIRST.name))
    choice = revisions.choose(observed, None)
    assert (choice.target, choice.stable, choice.create) == (FIRST.name, FIRST.name, None)
    nothing = revisions.choose(build.observed(SERVICE), None)
    assert (nothing.target, nothing.stable) == ("", "")


def test_the_deadline_is_each_pod_s_own() -> None:
    service = build.service(rollout={"progressDeadline": "1m"})
    cause = Cause(Reason.UNSCHEDULABLE, "no node has room")
    young = build.pod("a", revision="r", ready=False, changed_s=NOW - 59, cause=cause)
    old = build.pod("b", revision="r", ready=False, changed_s=NOW - 61, cause=cause)
    assert revisions.overdue(build.observed(service, pods=(young,)), "r", NOW) == ""
    assert "no node has room" in revisions.overdue(build.observed(service, pods=(young, old)), "r", NOW)
    assert revisions.overdue(build.observed(service, pods=(old,)), "another", NOW) == ""
    assert revisions.overdue_in_s(build.observed(service, pods=(young,)), "r", NOW) == pytest.approx(1.5)
    ready = build.pod("c", revision="r", changed_s=NOW - 10_000)
    assert revisions.overdue(build.observed(service, pods=(ready,)), "r", NOW) == ""


def test_pods_that_cannot_be_created_are_overdue_too() -> None:
    service = build.service(rollout={"progressDeadline": "1m"})
    refused = build.deployment(FIRST, 1, Cause(Reason.CREATE_FAILED, "quota"), NOW - 61)
    assert revisions.overdue(build.observed(service, deployments=(refused,)), FIRST.name, NOW) == "quota"
