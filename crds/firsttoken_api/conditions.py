"""One condition of a status, in the form every Kubernetes tool knows."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from firsttoken_api.base import StatusModel


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """What is the case, why, and what to do about it."""

    type: Annotated[str, Field(max_length=64)]
    """One of `firsttoken_api.reasons.ConditionType`."""
    status: ConditionStatus
    """Whether it holds."""
    reason: Annotated[str, Field(min_length=1, max_length=64)]
    """One of `firsttoken_api.reasons.Reason`."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What is wrong, with the field named, and what to do."""
    last_transition_time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this is about."""
