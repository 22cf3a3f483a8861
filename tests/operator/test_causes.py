"""Why a pod does not start, from what the kubelet and the scheduler say."""

import json
from typing import Any

import pytest

from builders import observed as build
from firsttoken_api.reasons import Reason
from firsttoken_api.state import Phase
from firsttoken_operator import causes

Object = dict[str, Any]


def pod(*statuses: Object, init: tuple[Object, ...] = (), conditions: tuple[Object, ...] = ()) -> Object:
    return {
        "metadata": {"name": "chat-1"},
        "status": {
            "containerStatuses": list(statuses),
            "initContainerStatuses": list(init),
            "conditions": list(conditions),
        },
    }


def container(name: str = "engine", restarts: int = 0, ready: bool = False, **state: Object) -> Object:
    last = state.pop("last", None)
    found: Object = {"name": name, "ready": ready, "restartCount": restarts, "state": state}
    return found | ({"lastState": last} if last else {})


def event(reason: str, message: str = "m", at: str = "2026-01-01T00:00:00Z") -> Object:
    return {
        "metadata": {"creationTimestamp": at},
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"name": "chat-1"},
    }


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ("ErrImagePull", Reason.IMAGE_PULL_FAILED),
        ("ImagePullBackOff", Reason.IMAGE_PULL_FAILED),
        ("ErrImageNeverPull", Reason.IMAGE_PULL_FAILED),
        ("InvalidImageName", Reason.IMAGE_PULL_FAILED),
        ("CreateContainerConfigError", Reason.CONTAINER_CONFIG_ERROR),
        ("RunContainerError", Reason.CONTAINER_CONFIG_ERROR),
    ],
)
def test_waiting_reasons(waiting: str, expected: Reason) -> None:
    cause = causes.of_pod(pod(container(waiting={"reason": waiting, "message": "what the kubelet says"})))
    assert cause is not None
    assert cause.reason is expected
    assert "engine" in cause.message
    assert "chat-1" in cause.message
    assert "what the kubelet says" in cause.message


def test_ordinary_waiting_is_no_cause() -> None:
    assert causes.of_pod(pod(container(waiting={"reason": "PodInitializing"}))) is None
    assert causes.of_pod(pod(container(waiting={"reason": "ContainerCreating"}))) is None
    assert causes.of_pod({"metadata": {"name": "new"}}) is None


def test_the_sidecar_counts_too() -> None:
    failing = container("sidecar", waiting={"reason": "ErrImagePull"})
    cause = causes.of_pod(pod(container(waiting={"reason": "PodInitializing"}), init=(failing,)))
    assert cause is not None
    assert "sidecar" in cause.message


def test_the_engine_s_last_words_win() -> None:
    words = json.dumps({"reason": "NotEnoughMemory", "message": "raise spec.resources.memory to 3Gi"})
    looping = container(
        restarts=3,
        waiting={"reason": "CrashLoopBackOff"},
        last={"terminated": {"exitCode": 2, "message": words}},
    )
    cause = causes.of_pod(pod(looping))
    assert cause is not None
    assert cause.reason is Reason.ENGINE_FAILED
    assert "NotEnoughMemory: raise spec.resources.memory to 3Gi" in cause.message


def test_a_kill_for_memory_names_the_field() -> None:
    killed = container(restarts=1, running={}, last={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    cause = causes.of_pod(pod(killed))
    assert cause is not None
    assert "spec.resources.memory" in cause.message


def test_a_crash_loop_says_how_to_read_the_log() -> None:
    looping = container(
        restarts=4,
        waiting={"reason": "CrashLoopBackOff"},
        last={"terminated": {"exitCode": 1, "message": "not JSON"}},
    )
    cause = causes.of_pod(pod(looping))
    assert cause is not None
    assert cause.reason is Reason.CRASH_LOOP
    assert "kubectl logs chat-1 -c engine --previous" in cause.message
    assert "exit code 1" in cause.message


def test_one_restart_is_not_worth_a_word() -> None:
    assert causes.of_pod(pod(container(restarts=1, running={}))) is None


def test_scheduling() -> None:
    said = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    cause = causes.of_pod(pod(conditions=(condition,)))
    assert cause is not None
    assert cause.reason is Reason.UNSCHEDULABLE
    assert "Insufficient nvidia.com/gpu" in cause.message


def test_scheduling_is_given_a_moment() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "unbound immediate claims"}
    early = causes.PENDING_PATIENCE_S - 1
    assert causes.of_pod(pod(conditions=(condition,)), waited_s=early) is None
    assert causes.of_pod(pod(), [event("FailedMount")], waited_s=early) is None
    pulling = pod(container(waiting={"reason": "ErrImagePull"}))
    assert causes.of_pod(pulling, waited_s=0) is not None


def test_a_missing_claim_is_told_apart() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "message": '0/1 nodes are available: persistentvolumeclaim "absent" not found.',
    }
    cause = causes.of_pod(pod(conditions=(condition,)))
    assert cause is not None
    assert cause.reason is Reason.CLAIM_NOT_FOUND
    assert "absent" in cause.message


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("FailedMount", Reason.MOUNT_FAILED),
        ("FailedAttachVolume", Reason.MOUNT_FAILED),
        ("FailedScheduling", Reason.UNSCHEDULABLE),
        ("FailedCreate", Reason.CREATE_FAILED),
    ],
)
def test_events_explain_what_states_do_not(reason: str, expected: Reason) -> None:
    cause = causes.of_pod(pod(), [event(reason, 'secret "keys" not found'), event("Unhealthy")])
    assert cause is not None
    assert cause.reason is expected
    assert 'secret "keys" not found' in cause.message


SCHEDULED = {"type": "PodScheduled", "status": "True"}


@pytest.mark.parametrize(
    ("found", "reason", "is_told"),
    [
        (pod(conditions=(SCHEDULED,)), "FailedScheduling", False),
        (pod(conditions=(SCHEDULED,)), "FailedMount", True),
        (pod(container(), init=(container("sidecar", running={}),)), "FailedMount", False),
        (pod(container(waiting={}, last={"terminated": {}})), "FailedCreatePodSandBox", False),
    ],
)
def test_an_event_of_an_earlier_stage_explains_nothing_any_more(
    found: Object, reason: str, is_told: bool
) -> None:
    assert (causes.of_pod(found, [event(reason, "0/1 nodes are available")]) is not None) is is_told


def test_the_newest_event_is_told() -> None:
    old = event("FailedMount", "old", "2026-01-01T00:00:00Z")
    new = event("FailedMount", "new", "2026-01-01T00:05:00Z")
    cause = causes.of_events([new, old])
    assert cause is not None
    assert cause.message.endswith("new")


def test_states_win_over_events() -> None:
    waiting = container(waiting={"reason": "ErrImagePull"})
    cause = causes.of_pod(pod(waiting), [event("FailedMount")])
    assert cause is not None
    assert cause.reason is Reason.IMAGE_PULL_FAILED


def test_pods_that_are_refused_show_on_the_deployment() -> None:
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": "exceeded quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    found = causes.of_deployment({"status": {"conditions": [failure]}})
    assert found is not None
    assert found[0].reason is Reason.CREATE_FAILED
    assert causes.of_deployment({"status": {"conditions": [failure | {"status": "False"}]}}) is None
    assert causes.of_deployment({}) is None


def test_an_engine_that_takes_no_flags_is_told() -> None:
    cause = causes.of_state("chat-1", build.sidecar_state(0, error="chunked-prefill: no such flag"))
    assert cause is not None
    assert cause.reason is Reason.REJECTED_BY_ENGINE
    assert "chat-1" in cause.message
    assert "no such flag" in cause.message
    assert causes.of_state("chat-1", None) is None
    assert causes.of_state("chat-1", build.sidecar_state(1, error="of newer ones")) is None
    assert causes.of_state("chat-1", build.sidecar_state(0)) is None
    loading = build.sidecar_state(0, phase=Phase.LOADING, error="no document yet")
    assert causes.of_state("chat-1", loading) is None
