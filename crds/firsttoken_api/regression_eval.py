"""The kind `RegressionEval`: one judgement of flags on one service. Not part of this version: the schema
is published, creation is refused."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from firsttoken_api import cel, duration, names
from firsttoken_api.base import SpecModel, StatusModel
from firsttoken_api.inference_service import ObjectMeta
from firsttoken_api.references import ConfigMapSource, LocalReference

NOT_IN_THIS_VERSION = cel.Rule(
    "false",
    "RegressionEval cannot be created: the regression gate is not part of this version of Firsttoken",
)
SPEC_IS_IMMUTABLE = cel.Rule(
    "self == oldSelf", "spec of a RegressionEval cannot be changed; create another one"
)


class Trigger(StrEnum):
    """Why an eval runs."""

    FLAGS = "Flags"
    REVISION = "Revision"
    SCHEDULE = "Schedule"
    MANUAL = "Manual"


class EvalPhase(StrEnum):
    """Where an eval is in its life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"


class Verdict(StrEnum):
    """What an eval says about one flag."""

    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class RegressionEvalSpec(SpecModel):
    """What is judged."""

    model_config = ConfigDict(json_schema_extra=cel.rules(SPEC_IS_IMMUTABLE))

    service_ref: LocalReference
    """The InferenceService."""
    flags: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(min_length=1, max_length=32)]
    """The flags to judge."""
    suite: ConfigMapSource
    """The questions."""
    trigger: Trigger = Trigger.MANUAL
    """Why it runs."""
    timeout: Annotated[str, duration.Within("spec.timeout", "1m", "24h")] = "45m"
    """Longest time of one attempt."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """Attempts before it counts as inconclusive."""


class FlagVerdict(StatusModel):
    """The verdict on one flag."""

    flag: Annotated[str, Field(max_length=40)]
    verdict: Verdict
    message: Annotated[str, Field(max_length=512)] = ""


class RegressionEvalStatus(StatusModel):
    """What came out."""

    phase: EvalPhase = EvalPhase.PENDING
    attempt: Annotated[int, Field(ge=0)] = 0
    start_time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})] | None = None
    completion_time: (
        Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})] | None
    ) = None
    input_hash: Annotated[str, Field(max_length=64)] = ""
    """Hash of model, revision, flags and suite; an eval of equal inputs is not repeated."""
    verdicts: Annotated[
        tuple[FlagVerdict, ...], Field(max_length=32, json_schema_extra=cel.list_map("flag"))
    ] = ()
    message: Annotated[str, Field(max_length=1024)] = ""


class RegressionEval(SpecModel):
    """One judgement of flags on one service. Not part of this version."""

    model_config = ConfigDict(json_schema_extra=cel.rules(NOT_IN_THIS_VERSION))

    api_version: Literal["firsttoken.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["RegressionEval"] = names.EVALUATION_KIND
    metadata: ObjectMeta
    spec: RegressionEvalSpec
    status: RegressionEvalStatus = RegressionEvalStatus()
