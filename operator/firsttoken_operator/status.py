"""What is reported of a service: conditions with what to do, counts, and what is in force. Pure.

The whole status is stated at each reconcile and written only if it differs; transition times are carried
over from the previous one. Texts that move by themselves (ages, percentages) are kept out: at rest nothing
changes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from firsttoken_api import duration, names, state
from firsttoken_api.conditions import Condition, ConditionStatus
from firsttoken_api.flags import FlagMode
from firsttoken_api.reasons import ConditionType, Reason
from firsttoken_api.state import Phase
from firsttoken_api.status import (
    FlagGeneration,
    InferenceServiceStatus,
    OptimizationStatus,
    Replicas,
    Resolved,
    Revisions,
    SloStatus,
)
from firsttoken_operator import objects, plan, ttft
from firsttoken_operator.observed import Cause, Observed, Pod

Object = dict[str, Any]

LONGEST_MESSAGE = 512
SLO_EVERY_S = 60.0
SLO_CHANGE = 0.10
SCRAPE_FAILURES = 3
"""Scrapes in a row that must fail before MetricsAvailable says so."""

_MILLISECONDS = re.compile(r">?([0-9]{1,15})ms")

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
class _Finding:
    """A condition before it has a transition time."""

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str = ""


@dataclass(frozen=True)
class Slo:
    """`status.slo`, and whether this is news (then the caller remembers when it was written)."""

    value: SloStatus | None
    is_news: bool
    was_looked_at: bool = False
    """The measurement was compared; without new requests there is no need to again."""
    again_after_s: float | None = None
    """A change is held back until then."""


def build(
    observed: Observed,
    decided: plan.Plan,
    conflicts: tuple[str, ...],
    refusals: tuple[str, ...],
    now: float,
) -> tuple[InferenceServiceStatus, Slo]:
    """The status of a service whose spec could be read. `conflicts`, `refusals`: what applying ran into."""
    service = observed.service
    slo = measured(observed, now)
    taken = (*decided.conflicts, *conflicts)
    findings = tuple(_findings(observed, decided, taken, refusals, slo.value))
    kept = {} if decided.resolution is not None else _kept(observed, ConditionType.MODEL_RESOLVED)
    return InferenceServiceStatus(
        observed_generation=service.metadata.generation,
        selector=selector(service.metadata.name),
        replicas=_replicas(observed, decided),
        conditions=_conditions(observed, findings, kept, now),
        resolved=_resolved(observed, decided),
        flags=_flags_summary(observed, decided),
        optimizations=tuple(
            OptimizationStatus(
                name=each.name,
                requested=each.requested,
                effective=each.enabled,
                reason=each.reason,
                message=each.message,
            )
            for each in decided.decisions
        ),
        flag_generation=FlagGeneration(desired=decided.generation, applied=decided.progress.applied),
        revisions=Revisions(
            stable=decided.choice.stable,
            candidate=decided.choice.candidate,
            rejected=decided.choice.rejected,
        ),
        slo=slo.value,
        scaling=observed.previous.scaling,
    ), slo


def unreadable(
    previous: InferenceServiceStatus, generation: int, name: str, message: str, now: float
) -> InferenceServiceStatus:
    """The status of a service whose spec does not fit our types: all else stays as it was."""
    finding = _Finding(ConditionType.SPEC_ACCEPTED, ConditionStatus.FALSE, Reason.INVALID_SPEC, message)
    known = {condition.type: condition for condition in previous.conditions}
    known[finding.type] = _condition(finding, known.get(finding.type), generation, now)
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "selector": selector(name),
            "conditions": tuple(known[key] for key in sorted(known, key=_order)),
        }
    )


def selector(service: str) -> str:
    """The label selector of `/scale`, as text."""
    return ",".join(f"{key}={value}" for key, value in objects.serving_selector(service).items())


def to_wire(status: InferenceServiceStatus) -> Object:
    """The JSON that is written."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def measured(observed: Observed, now: float) -> Slo:
    """The P95 of the window, at rest the last one that was seen.

    Without new requests the percentile only moves because old ones leave the window: that is no news. A first
    value, one on the other side of the objective, and at most once a minute a change past a tenth are.
    """
    previous = observed.previous.slo
    merged = ttft.merge(_windows(observed))
    value_s = ttft.quantile_s(merged, 0.95) if merged else None
    if merged is None or value_s is None:
        return Slo(previous, False)
    before_s = _seconds(previous)
    if before_s is not None and observed.traffic_at_slo in (None, observed.traffic()):
        return Slo(previous, False, was_looked_at=True)
    objective_s = duration.to_seconds(observed.service.spec.slo.ttft_p95)
    above = ttft.fraction_above(merged, objective_s) or 0.0
    is_past_last = value_s >= merged.edges_s[-1]
    text = f"{'>' if is_past_last else ''}{max(1, round(value_s * 1000))}ms"
    current = SloStatus(ttft_p95=text, breach_fraction=f"{above:.2f}")
    if before_s is None or (before_s > objective_s) != (value_s > objective_s):
        return Slo(current, True, was_looked_at=True)
    if abs(value_s - before_s) <= SLO_CHANGE * before_s:
        return Slo(previous, False, was_looked_at=True)
    is_due = observed.slo_written_s is None or now - observed.slo_written_s >= SLO_EVERY_S
    if is_due or observed.slo_written_s is None:
        return Slo(current, True, was_looked_at=True)
    return Slo(previous, False, again_after_s=observed.slo_written_s + SLO_EVERY_S - now)


def _seconds(slo: SloStatus | None) -> float | None:
    """None also for what somebody else wrote there."""
    found = _MILLISECONDS.fullmatch((slo.ttft_p95 or "") if slo else "")
    return int(found[1]) / 1000 if found else None


def _windows(observed: Observed) -> Iterator[state.TtftWindow]:
    for pod in observed.live_pods():
        if pod.state and pod.state.ttft:
            yield pod.state.ttft


def _replicas(observed: Observed, decided: plan.Plan) -> Replicas:
    live = observed.live_pods()
    pending = tuple(pod for pod in live if not pod.ready)
    return Replicas(
        total=len(live),
        desired=decided.wanted.replicas,
        ready=len(live) - len(pending),
        pending=len(pending),
        draining=len(observed.pods) - len(live),
        stuck=sum(1 for pod in pending if pod.cause is not None),
    )


def _resolved(observed: Observed, decided: plan.Plan) -> Resolved | None:
    """What the serving revision is; engine figures stay while no engine says others."""
    choice = decided.choice
    revision = observed.revision(choice.stable)
    if revision is None:
        if choice.create is None:
            return observed.previous.resolved
        model, image = choice.create.model, choice.create.image
    else:
        model, image = revision.model, revision.image
    engines = [
        pod.state.engine
        for pod in observed.pods_of(choice.stable)
        if pod.state and pod.state.engine and pod.state.engine.phase is Phase.READY
    ]
    before = observed.previous.resolved
    is_same = before is not None and before.model_revision == model.digest and before.image == image
    return Resolved(
        model_revision=model.digest,
        image=image,
        architecture=model.architecture,
        source=observed.service.spec.model.source,
        max_model_len=min(
            (each.max_model_len for each in engines),
            default=before.max_model_len if before and is_same else None,
        ),
        kv_blocks=min(
            (each.kv.blocks_total for each in engines),
            default=before.kv_blocks if before and is_same else None,
        ),
    )


def _flags_summary(observed: Observed, decided: plan.Plan) -> str:
    """Flags in force on every ready replica, out of those wanted."""
    wanted = {each.name for each in decided.decisions if each.enabled}
    reported = [set(pod.state.flags.enabled) for pod in observed.live_pods() if pod.ready and pod.state]
    in_force = wanted.intersection(*reported) if reported else set()
    return f"{len(in_force)}/{len(wanted)}"


def _findings(
    observed: Observed,
    decided: plan.Plan,
    conflicts: tuple[str, ...],
    refusals: tuple[str, ...],
    slo: SloStatus | None,
) -> Iterator[_Finding]:
    yield _spec_accepted(decided)
    yield _ready(observed, decided)
    if refusals:
        yield _Finding(
            ConditionType.PROGRESSING, ConditionStatus.FALSE, Reason.CREATE_FAILED, "; ".join(refusals)
        )
    else:
        yield _progressing(observed, decided)
    if decided.resolution is not None:
        yield _Finding(
            ConditionType.MODEL_RESOLVED,
            ConditionStatus.TRUE if decided.resolution.model else ConditionStatus.FALSE,
            decided.resolution.reason,
            decided.resolution.message,
        )
    yield _schedulable(observed)
    yield _flags_applied(observed, decided)
    yield _metrics_available(observed)
    yield _slo_attainable(observed, slo)
    yield _Finding(
        ConditionType.SCALING_LIMITED,
        ConditionStatus.TRUE if decided.wanted.is_limited else ConditionStatus.FALSE,
        decided.wanted.reason,
        decided.wanted.message,
    )
    if any(each.requested == FlagMode.GATED for each in decided.decisions):
        yield _Finding(
            ConditionType.GATE_PASSED,
            ConditionStatus.UNKNOWN,
            Reason.GATE_NOT_BUILT,
            "this version judges no flags; Gated ones stay off",
        )
    yield _Finding(
        ConditionType.NAME_CONFLICT,
        ConditionStatus.TRUE if conflicts else ConditionStatus.FALSE,
        Reason.NAME_CONFLICT if conflicts else Reason.NO_CONFLICT,
        "; ".join(conflicts),
    )
    yield _update_available(decided)
    yield from _image_pinned(observed, decided)


def _spec_accepted(decided: plan.Plan) -> _Finding:
    if decided.not_built:
        return _Finding(
            ConditionType.SPEC_ACCEPTED,
            ConditionStatus.FALSE,
            Reason.NOT_BUILT,
            "; ".join(decided.not_built),
        )
    return _Finding(ConditionType.SPEC_ACCEPTED, ConditionStatus.TRUE, Reason.ACCEPTED)


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


def _ready(observed: Observed, decided: plan.Plan) -> _Finding:
    ready = sum(pod.ready for pod in observed.live_pods())

    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> _Finding:
        return _Finding(ConditionType.READY, status, reason, message)

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


def _progressing(observed: Observed, decided: plan.Plan) -> _Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> _Finding:
        return _Finding(ConditionType.PROGRESSING, status, reason, message)

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


def _schedulable(observed: Observed) -> _Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> _Finding:
        return _Finding(ConditionType.SCHEDULABLE, status, reason, message)

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


def _flags_applied(observed: Observed, decided: plan.Plan) -> _Finding:
    progress = decided.progress

    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> _Finding:
        return _Finding(ConditionType.FLAGS_APPLIED, status, reason, message)

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
        return answer(
            ConditionStatus.FALSE,
            Reason.APPLYING,
            f"{stuck} did not take generation {decided.generation} within 30 s; it is tried again. "
            "If it stays so, delete the pod",
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


def _metrics_available(observed: Observed) -> _Finding:
    def answer(status: ConditionStatus, reason: Reason, message: str = "") -> _Finding:
        return _Finding(ConditionType.METRICS_AVAILABLE, status, reason, message)

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


def _slo_attainable(observed: Observed, slo: SloStatus | None) -> _Finding:
    objective = observed.service.spec.slo.ttft_p95
    value_s = _seconds(slo)
    if value_s is None:
        return _Finding(ConditionType.SLO_ATTAINABLE, ConditionStatus.UNKNOWN, Reason.TOO_FEW_REQUESTS)
    if value_s <= duration.to_seconds(objective):
        return _Finding(ConditionType.SLO_ATTAINABLE, ConditionStatus.TRUE, Reason.WITHIN_OBJECTIVE)
    return _Finding(
        ConditionType.SLO_ATTAINABLE,
        ConditionStatus.FALSE,
        Reason.OVER_OBJECTIVE,
        f"the measured P95 is above {objective}; add replicas or raise spec.slo.ttftP95",
    )


def _update_available(decided: plan.Plan) -> _Finding:
    is_available = decided.choice.update_available
    message = (
        f"this operator renders the pods differently; set the annotation {names.ANNOTATION_REFRESH} "
        "to a new value to roll out"
    )
    return _Finding(
        ConditionType.UPDATE_AVAILABLE,
        ConditionStatus.TRUE if is_available else ConditionStatus.FALSE,
        Reason.NEW_RENDERING if is_available else Reason.UP_TO_DATE,
        message if is_available else "",
    )


def _image_pinned(observed: Observed, decided: plan.Plan) -> Iterator[_Finding]:
    resolved = _resolved(observed, decided)
    if resolved is None:
        return
    is_pinned = "@sha256:" in resolved.image
    yield _Finding(
        ConditionType.IMAGE_PINNED,
        ConditionStatus.TRUE if is_pinned else ConditionStatus.FALSE,
        Reason.PINNED if is_pinned else Reason.IMAGE_NOT_PINNED,
        "" if is_pinned else f"{resolved.image} is named by a tag; name it by digest (name@sha256:…)",
    )


def _kept(observed: Observed, *types: ConditionType) -> dict[str, Condition]:
    """Conditions that this reconcile did not look at stay as they are."""
    return {each.type: each for each in observed.previous.conditions if each.type in types}


def _conditions(
    observed: Observed, findings: tuple[_Finding, ...], kept: dict[str, Condition], now: float
) -> tuple[Condition, ...]:
    before = {each.type: each for each in observed.previous.conditions}
    generation = observed.service.metadata.generation
    current = kept | {
        finding.type.value: _condition(finding, before.get(finding.type), generation, now)
        for finding in findings
    }
    return tuple(current[key] for key in sorted(current, key=_order))


def _order(condition_type: str) -> int:
    known = [each.value for each in ConditionType]
    return known.index(condition_type) if condition_type in known else len(known)


def _condition(finding: _Finding, before: Condition | None, generation: int, now: float) -> Condition:
    is_same = before is not None and before.status == finding.status
    message = finding.message
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=message,
        last_transition_time=before.last_transition_time if before and is_same else _timestamp(now),
        observed_generation=generation,
    )


def _timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
