"""Findings become `status.conditions`: transition times are carried over while a status stays. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from firsttoken_api.conditions import Condition
from firsttoken_api.reasons import ConditionType
from firsttoken_api.status import InferenceServiceStatus
from firsttoken_operator import findings

LONGEST_MESSAGE = 512


def by_type(status: InferenceServiceStatus) -> dict[str, Condition]:
    return {each.type: each for each in status.conditions}


def state(
    found: Iterable[findings.Finding],
    before: Mapping[str, Condition],
    kept: Mapping[str, Condition],
    generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """All conditions in the order of their types. `kept`: those that this reconcile did not look at."""
    current = dict(kept) | {
        each.type.value: _condition(each, before.get(each.type), generation, now) for each in found
    }
    return tuple(current[key] for key in sorted(current, key=_order))


def _order(condition_type: str) -> int:
    known = [each.value for each in ConditionType]
    return known.index(condition_type) if condition_type in known else len(known)


def _condition(finding: findings.Finding, before: Condition | None, generation: int, now: float) -> Condition:
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
