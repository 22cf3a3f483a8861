"""Why a pod does not start, read from container states, the engine's last words and Warning events. Pure.

An ordered list of small readers; the first that knows something answers. The message always says which
container or volume, and what to do where that is not obvious.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_api.state import Phase, SidecarState
from firsttoken_operator.observed import Cause

Object = dict[str, Any]

PENDING_PATIENCE_S = 15.0
"""A pod that is pending for longer has its events read."""

_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError"}
)
_EVENT_REASONS = {
    "FailedMount": Reason.MOUNT_FAILED,
    "FailedAttachVolume": Reason.MOUNT_FAILED,
    "FailedScheduling": Reason.UNSCHEDULABLE,
    "FailedCreate": Reason.CREATE_FAILED,
    "FailedCreatePodSandBox": Reason.CONTAINER_CONFIG_ERROR,
}
_CRASHES_WORTH_TELLING = 2


def of_pod(pod: Object, events: Iterable[Object] = (), waited_s: float = PENDING_PATIENCE_S) -> Cause | None:
    """What keeps this pod from becoming ready; None if nothing is known to be wrong.

    A claim that is just being bound or a node that is just being added looks like a failure of scheduling:
    that is told only of a pod that has `waited_s` for a while.
    """
    readers: tuple[Callable[[], Cause | None], ...] = (
        lambda: _engine_failure(pod),
        lambda: _waiting(pod),
        lambda: _crashing(pod),
        lambda: _unscheduled(pod) if waited_s >= PENDING_PATIENCE_S else None,
        lambda: _event(_still_telling(pod, events)) if waited_s >= PENDING_PATIENCE_S else None,
    )
    return next((cause for reader in readers if (cause := reader()) is not None), None)


def of_deployment(deployment: Object) -> tuple[Cause, str] | None:
    """Why pods cannot be created, and since when (RFC 3339); from the condition ReplicaFailure."""
    for condition in (deployment.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            cause = Cause(Reason.CREATE_FAILED, str(condition.get("message", "")))
            return cause, str(condition["lastTransitionTime"])
    return None


def of_events(events: Iterable[Object]) -> Cause | None:
    """The newest telling Warning event."""
    return _event(events)


def of_state(name: str, state: SidecarState | None) -> Cause | None:
    """An engine that has loaded but takes no flags, not even its first: it will not become ready."""
    if state is None or state.engine is None or state.engine.phase is not Phase.READY:
        return None
    if state.flags.generation > 0 or not state.flags.error:
        return None
    return Cause(Reason.REJECTED_BY_ENGINE, f"{name} has no flags in force: {state.flags.error}")


def _statuses(pod: Object) -> Iterator[Object]:
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _engine_failure(pod: Object) -> Cause | None:
    for status in _statuses(pod):
        if status["name"] != names.ENGINE_CONTAINER or status.get("ready"):
            continue
        for where in ("state", "lastState"):
            terminated = (status.get(where) or {}).get("terminated")
            if not terminated:
                continue
            if terminated.get("reason") == "OOMKilled":
                return Cause(
                    Reason.CRASH_LOOP,
                    f"the engine of {_name(pod)} used more than spec.resources.memory; raise it",
                )
            said = _last_words(terminated.get("message"))
            if said is not None:
                return Cause(Reason.ENGINE_FAILED, f"engine of {_name(pod)}: {said}")
    return None


def _last_words(message: str | None) -> str | None:
    """The engine's own explanation, `{"reason", "message"}`; None for anything else."""
    if not message:
        return None
    try:
        said = json.loads(message)
    except ValueError:
        return None
    if not isinstance(said, dict) or "message" not in said:
        return None
    return f"{said.get('reason', 'Failed')}: {said['message']}"


def _waiting(pod: Object) -> Cause | None:
    for status in _statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        where = f"container {status['name']} of {_name(pod)}"
        said = f"{where}: {reason}: {waiting.get('message', '')}".rstrip(": ")
        if reason in _IMAGE_REASONS:
            return Cause(Reason.IMAGE_PULL_FAILED, said)
        if reason in _CONFIG_REASONS:
            return Cause(Reason.CONTAINER_CONFIG_ERROR, said)
    return None


def _crashing(pod: Object) -> Cause | None:
    for status in _statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        restarts = int(status.get("restartCount") or 0)
        is_looping = waiting.get("reason") == "CrashLoopBackOff"
        if not is_looping and (restarts < _CRASHES_WORTH_TELLING or status.get("ready")):
            continue
        ended = (status.get("lastState") or {}).get("terminated") or {}
        how = f"exit code {ended['exitCode']}" if "exitCode" in ended else "an unknown exit code"
        container = status["name"]
        return Cause(
            Reason.CRASH_LOOP,
            f"container {container} of {_name(pod)} ended {restarts} times, last with {how}: "
            f"kubectl logs {_name(pod)} -c {container} --previous",
        )
    return None


def _unscheduled(pod: Object) -> Cause | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _scheduling(f"{_name(pod)}: {condition.get('message', '')}")
    return None


def _scheduling(message: str) -> Cause:
    if "persistentvolumeclaim" in message and "not found" in message:
        return Cause(Reason.CLAIM_NOT_FOUND, message)
    return Cause(Reason.UNSCHEDULABLE, message)


def _still_telling(pod: Object, events: Iterable[Object]) -> Iterator[Object]:
    """Events outlive what they tell of: a pod that has a node is not looking for one any more, and one with a
    container that ran has its volumes and its network."""
    if any(
        (status.get(where) or {}).keys() & {"running", "terminated"}
        for status in _statuses(pod)
        for where in ("state", "lastState")
    ):
        return
    conditions = (pod.get("status") or {}).get("conditions") or ()
    has_node = any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions)
    for event in events:
        if not (has_node and event.get("reason") == "FailedScheduling"):
            yield event


def _event(events: Iterable[Object]) -> Cause | None:
    known = [event for event in events if event.get("reason") in _EVENT_REASONS]
    if not known:
        return None
    newest = max(known, key=_event_time)
    reason = _EVENT_REASONS[newest["reason"]]
    about = newest.get("involvedObject", {}).get("name", "")
    message = f"{about}: {newest.get('message', '')}"
    return _scheduling(message) if reason is Reason.UNSCHEDULABLE else Cause(reason, message)


def _event_time(event: Object) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp", "")
    )


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
