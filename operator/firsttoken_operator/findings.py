"""What is the case with a service, and what to do: one small function per condition. Pure.

Texts that move by themselves (ages, percentages) are kept out: at rest nothing changes. `conditions` adds the
transition times.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from firsttoken_api import duration, names
from firsttoken_api.conditions import ConditionStatus
from firsttoken_api.flags import FlagMode
from firsttoken_api.reasons import ConditionType, Reason
from firsttoken_api.state import Phase
from firsttoken_api.status import Resolved, SloStatus
from firsttoken_operator import flag_rollout, plan, resolution, slo
from firsttoken_operator.observed import Cause, Observed, Pod

SCRAPE_FAILURES = 3
"""Scrapes in a row that must fail before MetricsAvailable says so."""

_SCHEDULING_REASONS = frozenset(
    {
        Reason.UNSCHEDULABLE,
        Reason.CLAIM_NOT_FOUND,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.MOUNT_FAILED,
        Reason.CREATE_FAILED,
    }
)


@dataclass(frozen=True)
class Finding:
    """A condition before it has a transition time."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str = ""


def judge(
    observed: Observed,
    decided: plan.Plan,
    conflicts: tuple[str, ...],
    refusals: tuple[str, ...],
    current: SloStatus | None,
    resolved: Resolved | None,
) -> Iterator[Finding]:
    """Every condition that this reconcile can answer. `conflicts`, `refusals`: what applying ran into."""
    yield _spec_accepted(decided)
    yield _ready(observed, decided)
    yield _refused(refusals) if refusals else _progressing(observed, decided)
    if decided.resolution is not None:
        yield _model_resolved(decided.resolution)
    yield _schedulable(observed)
    yield _flags_applied(observed, decided)
    yield _metrics_available(observed)
    yield _slo_attainable(observed, current)
    yield _scaling_limited(decided)
    if any(each.requested == FlagMode.GATED for each in decided.decisions):
        yield _gate_passed()
    yield _name_conflict(conflicts)
    if observed.service.spec.routing.auth is not None:
        yield _auth_config_invalid(observed, observed.service.spec.routing.auth.secret_ref.name)
    yield _update_available(decided)
    if resolved is not None:
        yield _image_pinned(resolved.image)


def _spec_accepted(decided: plan.Plan) -> Finding:
    if decided.not_built:
        return Finding(
            ConditionType.SPEC_ACCEPTED,
            ConditionStatus.FALSE,
            Reason.NOT_BUILT,
            "; ".join(decided.not_built),
        )
    return Finding(ConditionType.SPEC_ACCEPTED, ConditionStatus.TRUE, Reason.ACCEPTED)


def _first_cause(observed: Observed, revision: str = "") -> Cause | None:
    """What keeps replicas from starting; pods by name, so that the answer does not jump."""
    pods = sorted(observed.live_pods(), key=lambda pod: pod.name)
    for pod in pods:
        if not pod.ready and pod.cause and revision in ("", pod.revision):
            return pod.cause
    for deployment in observed.deployments:
        if deployment.failure and revision in ("", deployment.revision):
            return deployment.failure
    return None


def _is_waiting_for_model(decided: plan.Plan) -> bool:
    return decided.resolution is not None and decided.resolution.model is None


def _starting(pods: tuple[Pod, ...]) -> tuple[Reason, str]:
    loading = [
        pod for pod in pods if pod.state and pod.state.engine and pod.state.engine.phase is Phase.LOADING
    ]
    if loading:
        return Reason.LOADING, f"{loading[0].name} loads the model"
    return Reason.STARTING, f"{pods[0].name} is starting" if pods else "pods are being created"


def _ready(observed: Observed, decided: plan.Plan) -> Finding:
    ready = sum(pod.ready for pod in observed.live_pods())

    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.READY, status, reason, message)

    if ready:
        return answer(
            ConditionStatus.TRUE, Reason.SERVING, f"{ready} of {decided.wanted.replicas} replicas are ready"
        )
    if observed.service.spec.suspend:
        return answer(ConditionStatus.FALSE, Reason.SUSPENDED, "spec.suspend is true")
    if decided.not_built:
        return answer(ConditionStatus.FALSE, Reason.NOT_BUILT, "see SpecAccepted")
    if not decided.choice.target and _is_waiting_for_model(decided):
        return answer(ConditionStatus.FALSE, Reason.WAITING_FOR_MODEL, "see ModelResolved")
    if decided.wanted.replicas == 0:
        return answer(ConditionStatus.FALSE, Reason.NO_REPLICAS, "spec.scaling.replicas is 0")
    cause = _first_cause(observed)
    if cause is not None:
        return answer(ConditionStatus.FALSE, cause.reason, cause.message)
    reason, message = _starting(tuple(pod for pod in observed.live_pods()))
    return answer(ConditionStatus.FALSE, reason, message)


def _refused(refusals: tuple[str, ...]) -> Finding:
    return Finding(
        ConditionType.PROGRESSING, ConditionStatus.FALSE, Reason.CREATE_FAILED, "; ".join(refusals)
    )


def _progressing(observed: Observed, decided: plan.Plan) -> Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.PROGRESSING, status, reason, message)

    choice = decided.choice
    if decided.is_paused:
        return answer(
            ConditionStatus.FALSE, Reason.PAUSED, f"remove the annotation {names.ANNOTATION_PAUSED} to go on"
        )
    if decided.not_built:
        return answer(ConditionStatus.FALSE, Reason.NOT_BUILT, "see SpecAccepted")
    if decided.overdue:
        return answer(ConditionStatus.FALSE, Reason.DEADLINE_EXCEEDED, decided.overdue)
    if _is_waiting_for_model(decided):
        return answer(ConditionStatus.FALSE, Reason.WAITING_FOR_MODEL, "see ModelResolved")
    if observed.service.spec.suspend:
        return answer(ConditionStatus.FALSE, Reason.SUSPENDED, "spec.suspend is true")
    pods = observed.pods_of(choice.target)
    waiting = tuple(pod for pod in pods if not pod.ready)
    if choice.candidate:
        cause = _first_cause(observed, choice.candidate)
        why = f": {cause.message}" if cause else ""
        return answer(
            ConditionStatus.TRUE,
            Reason.ROLLING_OUT,
            f"revision {choice.candidate} replaces {choice.stable}{why}",
        )
    if waiting or len(pods) < decided.wanted.replicas:
        cause = _first_cause(observed, choice.target)
        if cause is not None:
            return answer(ConditionStatus.TRUE, cause.reason, cause.message)
        return answer(ConditionStatus.TRUE, *_starting(waiting))
    return answer(ConditionStatus.FALSE, Reason.COMPLETE, f"revision {choice.stable} serves")


def _model_resolved(found: resolution.Resolution) -> Finding:
    return Finding(
        ConditionType.MODEL_RESOLVED,
        ConditionStatus.TRUE if found.model else ConditionStatus.FALSE,
        found.reason,
        found.message,
    )


def _schedulable(observed: Observed) -> Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.SCHEDULABLE, status, reason, message)

    causes = [
        *(
            pod.cause
            for pod in sorted(observed.live_pods(), key=lambda pod: pod.name)
            if not pod.ready and pod.cause
        ),
        *(each.failure for each in observed.deployments if each.failure),
    ]
    cause = next((each for each in causes if each.reason in _SCHEDULING_REASONS), None)
    if cause is not None:
        return answer(ConditionStatus.FALSE, cause.reason, cause.message)
    if not observed.live_pods():
        return answer(ConditionStatus.UNKNOWN, Reason.NO_REPLICAS)
    return answer(ConditionStatus.TRUE, Reason.SCHEDULED)


def _flags_applied(observed: Observed, decided: plan.Plan) -> Finding:
    progress = decided.progress

    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.FLAGS_APPLIED, status, reason, message)

    if progress.refused:
        pod = progress.refused[0]
        said = pod.state.flags.error if pod.state else ""
        return answer(
            ConditionStatus.FALSE,
            Reason.REJECTED_BY_ENGINE,
            f"{pod.name} refused generation {decided.generation}: {said}",
        )
    if progress.stuck:
        stuck = ", ".join(pod.name for pod in progress.stuck)
        off = frozenset(each.name for each in decided.decisions if not each.enabled)
        kept = sorted({name for pod in progress.stuck for name in flag_rollout.keeps_on(pod, off)})
        what_next = (
            f"{', '.join(kept)} is still on there, so the pod is out of service and is deleted"
            if kept
            else "it is tried again. If it stays so, delete the pod"
        )
        return answer(
            ConditionStatus.FALSE,
            Reason.APPLYING,
            f"{stuck} did not take generation {decided.generation} within 30 s; {what_next}",
        )
    if progress.behind:
        return answer(
            ConditionStatus.FALSE,
            Reason.APPLYING,
            f"generation {decided.generation} is on its way to {progress.behind[0].name}",
        )
    if not any(pod.ready for pod in observed.live_pods()):
        return answer(ConditionStatus.UNKNOWN, Reason.NO_REPLICAS)
    return answer(ConditionStatus.TRUE, Reason.APPLIED, f"generation {decided.generation}")


def _metrics_available(observed: Observed) -> Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.METRICS_AVAILABLE, status, reason, message)

    ready = sorted((pod for pod in observed.live_pods() if pod.ready), key=lambda pod: pod.name)
    if not ready:
        return answer(ConditionStatus.UNKNOWN, Reason.NO_REPLICAS)
    failing = next((pod for pod in ready if pod.failed_scrapes >= SCRAPE_FAILURES), None)
    if failing is not None:
        return answer(
            ConditionStatus.FALSE,
            Reason.SCRAPE_FAILED,
            f"/state of {failing.name} cannot be read on port {names.OPS_PORT}",
        )
    if any(pod.state is None for pod in ready):
        return answer(ConditionStatus.UNKNOWN, Reason.STARTING)
    return answer(ConditionStatus.TRUE, Reason.SCRAPED)


def _slo_attainable(observed: Observed, current: SloStatus | None) -> Finding:
    objective = observed.service.spec.slo.ttft_p95
    value_s = slo.seconds(current)
    if value_s is None:
        return Finding(ConditionType.SLO_ATTAINABLE, ConditionStatus.UNKNOWN, Reason.TOO_FEW_REQUESTS)
    if value_s <= duration.to_seconds(objective):
        return Finding(ConditionType.SLO_ATTAINABLE, ConditionStatus.TRUE, Reason.WITHIN_OBJECTIVE)
    return Finding(
        ConditionType.SLO_ATTAINABLE,
        ConditionStatus.FALSE,
        Reason.OVER_OBJECTIVE,
        f"the measured P95 is above {objective}; add replicas or raise spec.slo.ttftP95",
    )


def _scaling_limited(decided: plan.Plan) -> Finding:
    return Finding(
        ConditionType.SCALING_LIMITED,
        ConditionStatus.TRUE if decided.wanted.is_limited else ConditionStatus.FALSE,
        decided.wanted.reason,
        decided.wanted.message,
    )


def _gate_passed() -> Finding:
    return Finding(
        ConditionType.GATE_PASSED,
        ConditionStatus.UNKNOWN,
        Reason.GATE_NOT_BUILT,
        "this version judges no flags; Gated ones stay off",
    )


def _name_conflict(conflicts: tuple[str, ...]) -> Finding:
    return Finding(
        ConditionType.NAME_CONFLICT,
        ConditionStatus.TRUE if conflicts else ConditionStatus.FALSE,
        Reason.NAME_CONFLICT if conflicts else Reason.NO_CONFLICT,
        "; ".join(conflicts),
    )


def _auth_config_invalid(observed: Observed, secret: str) -> Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> Finding:
        return Finding(ConditionType.AUTH_CONFIG_INVALID, status, reason, message)

    # All read the same Secret, so one message stands for all; pods are not named, their names change.
    errors = sorted(
        pod.state.auth_error for pod in observed.live_pods() if pod.state and pod.state.auth_error
    )
    if errors:
        return answer(
            ConditionStatus.TRUE,
            Reason.KEYS_MALFORMED,
            f"{errors[0]} (Secret {secret}, key {names.KEYS_FILE}); the last good keys stay in force",
        )
    if not any(pod.state for pod in observed.live_pods()):
        return answer(ConditionStatus.UNKNOWN, Reason.NO_REPLICAS)
    return answer(ConditionStatus.FALSE, Reason.KEYS_IN_FORCE)


def _update_available(decided: plan.Plan) -> Finding:
    is_available = decided.choice.update_available
    message = (
        f"this operator renders the pods differently; set the annotation {names.ANNOTATION_REFRESH} "
        "to a new value to roll out"
    )
    return Finding(
        ConditionType.UPDATE_AVAILABLE,
        ConditionStatus.TRUE if is_available else ConditionStatus.FALSE,
        Reason.NEW_RENDERING if is_available else Reason.UP_TO_DATE,
        message if is_available else "",
    )


def _image_pinned(image: str) -> Finding:
    is_pinned = "@sha256:" in image
    return Finding(
        ConditionType.IMAGE_PINNED,
        ConditionStatus.TRUE if is_pinned else ConditionStatus.FALSE,
        Reason.PINNED if is_pinned else Reason.IMAGE_NOT_PINNED,
        "" if is_pinned else f"{image} is named by a tag; name it by digest (name@sha256:…)",
    )
