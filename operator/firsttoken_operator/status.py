"""What is reported of a service: conditions with what to do, counts, and what is in force. Pure.

The whole status is stated at each reconcile and written only if it differs. Its parts: `findings` and
`conditions`, `slo`; the counts are here.
"""

from typing import Any

from firsttoken_api.conditions import ConditionStatus
from firsttoken_api.reasons import ConditionType, Reason
from firsttoken_api.state import Phase
from firsttoken_api.status import (
    FlagGeneration,
    InferenceServiceStatus,
    OptimizationStatus,
    Replicas,
    Resolved,
    Revisions,
)
from firsttoken_operator import conditions, findings, objects, plan, slo
from firsttoken_operator.observed import Observed

Object = dict[str, Any]


def build(
    observed: Observed,
    decided: plan.Plan,
    conflicts: tuple[str, ...],
    refusals: tuple[str, ...],
    now: float,
) -> tuple[InferenceServiceStatus, slo.Slo]:
    """The status of a service whose spec could be read. `conflicts`, `refusals`: what applying ran into."""
    service = observed.service
    measured = slo.measured(observed, now)
    taken = (*decided.conflicts, *conflicts)
    resolved = _resolved(observed, decided)
    found = findings.judge(observed, decided, taken, refusals, measured.value, resolved)
    before = conditions.by_type(observed.previous)
    kept = {}
    if decided.resolution is None and ConditionType.MODEL_RESOLVED in before:
        kept[ConditionType.MODEL_RESOLVED.value] = before[ConditionType.MODEL_RESOLVED]
    return InferenceServiceStatus(
        observed_generation=service.metadata.generation,
        selector=selector(service.metadata.name),
        replicas=_replicas(observed, decided),
        conditions=conditions.state(found, before, kept, service.metadata.generation, now),
        resolved=resolved,
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
        slo=measured.value,
        scaling=observed.previous.scaling,
    ), measured


def unreadable(
    previous: InferenceServiceStatus, generation: int, name: str, message: str, now: float
) -> InferenceServiceStatus:
    """The status of a service whose spec does not fit our types: all else stays as it was."""
    finding = findings.Finding(
        ConditionType.SPEC_ACCEPTED, ConditionStatus.FALSE, Reason.INVALID_SPEC, message
    )
    before = conditions.by_type(previous)
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "selector": selector(name),
            "conditions": conditions.state((finding,), before, before, generation, now),
        }
    )


def selector(service: str) -> str:
    """The label selector of `/scale`, as text."""
    return ",".join(f"{key}={value}" for key, value in objects.serving_selector(service).items())


def to_wire(status: InferenceServiceStatus) -> Object:
    """The JSON that is written."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


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
