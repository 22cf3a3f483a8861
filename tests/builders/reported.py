"""A service that serves with one revision, and what is reported of it."""

from typing import Any

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import flags as table
from firsttoken_api.conditions import Condition
from firsttoken_api.status import FlagGeneration, InferenceServiceStatus, Revisions
from firsttoken_operator import flags, plan, status
from firsttoken_operator.observed import Observed, Pod

SERVICE = build.service()
FIRST = build.revision(SERVICE)
HASH = flags.document(flags.decide((), frozenset()), SERVICE.spec, 1).hash
ALL_FLAGS = tuple(flag.name for flag in table.FLAGS if flag.built and flag.on_by_default)


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
