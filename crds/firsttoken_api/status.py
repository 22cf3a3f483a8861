"""`status` of an InferenceService: what is in force. Kept under 16 KiB."""

from typing import Annotated

from pydantic import Field

from firsttoken_api import cel
from firsttoken_api.base import StatusModel
from firsttoken_api.conditions import Condition

Text = Annotated[str, Field(max_length=512)]
Count = Annotated[int, Field(ge=0)]


class Replicas(StatusModel):
    """Replicas by what they do."""

    total: Count = 0
    """Pods that exist and are not ending; `/scale` reports it."""
    desired: Count = 0
    """Pods that are wanted."""
    ready: Count = 0
    """Pods that answer."""
    pending: Count = 0
    """Pods that are not ready yet."""
    draining: Count = 0
    """Pods that finish their requests before they end."""
    stuck: Count = 0
    """Pods that cannot start; the condition Schedulable or Progressing says why."""


class Resolved(StatusModel):
    """What the spec resolved to."""

    model_revision: Text = ""
    """`sha256:<hex>` of the model's content; every pod serves exactly that."""
    image: Text = ""
    """The engine image as rendered."""
    max_model_len: Count | None = None
    """Longest context in tokens that the engines report."""
    kv_blocks: Count | None = None
    """KV blocks of one engine."""
    architecture: Text = ""
    """The model's architecture."""
    source: Text = ""
    """The source that was resolved."""


class OptimizationStatus(StatusModel):
    """What became of one flag."""

    name: Annotated[str, Field(max_length=40)]
    """The flag."""
    requested: Annotated[str, Field(max_length=16)]
    """Disabled, Gated or Forced; Default where the spec does not list the flag."""
    effective: bool
    """Whether the flag is to be in force."""
    reason: Annotated[str, Field(max_length=64)]
    """One of `firsttoken_api.reasons.Reason`."""
    message: Text = ""
    """What to do, where there is something to do."""
    verdict_ref: Annotated[str, Field(max_length=253)] | None = None
    """The RegressionEval that judged the flag."""


class FlagGeneration(StatusModel):
    """Counts changes of the hot settings."""

    desired: Count = 0
    """The newest settings."""
    applied: Count = 0
    """The oldest settings that a ready replica still runs."""


class Revisions(StatusModel):
    """Cold revisions by name (10 hex digits)."""

    stable: Annotated[str, Field(max_length=40)] = ""
    """Serves; `Ready` is about it."""
    candidate: Annotated[str, Field(max_length=40)] = ""
    """Is being rolled out; `Progressing` is about it."""
    rejected: Annotated[tuple[Annotated[str, Field(max_length=40)], ...], Field(max_length=10)] = ()
    """Did not become ready in time, newest last."""


class SloStatus(StatusModel):
    """What was measured over `spec.slo.window`."""

    ttft_p95: Annotated[str, Field(max_length=20)] | None = None
    """For example `412ms`; `>40s` past the last bucket."""
    tpot_p95: Annotated[str, Field(max_length=20)] | None = None
    """Time per output token of the slowest replica over its last 30 s, when ttftP95 was written."""
    breach_fraction: Annotated[str, Field(max_length=10)] | None = None
    """Share of requests over the objective, for example `0.03`."""


class ScalingStatus(StatusModel):
    """What the scaler last did."""

    last_decision: Text = ""
    """What was decided, and why."""
    learned: Text = ""
    """What the scaler measured of this model."""


class InferenceServiceStatus(StatusModel):
    """What is in force."""

    observed_generation: Count = 0
    """Generation of the spec that this status is about."""
    selector: Text = ""
    """Label selector of the serving pods, for `/scale`."""
    replicas: Replicas = Replicas()
    conditions: Annotated[
        tuple[Condition, ...], Field(max_length=24, json_schema_extra=cel.list_map("type"))
    ] = ()
    """What is the case, and why."""
    resolved: Resolved | None = None
    flags: Annotated[str, Field(max_length=64)] = ""
    """Summary for the column FLAGS: flags in force out of flags wanted, for example `3/3`."""
    optimizations: Annotated[
        tuple[OptimizationStatus, ...], Field(max_length=32, json_schema_extra=cel.list_map("name"))
    ] = ()
    """What became of each flag."""
    flag_generation: FlagGeneration | None = None
    revisions: Revisions | None = None
    slo: SloStatus | None = None
    scaling: ScalingStatus | None = None
