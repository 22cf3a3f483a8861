"""`spec.scaling`: how many replicas. `/scale` reads and writes `replicas`."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from firsttoken_api import cel, duration
from firsttoken_api.base import SpecModel

LARGEST = 500

MIN_NOT_ABOVE_MAX = cel.Rule(
    # The guards: defaults are checked before their own fields are filled in.
    "!has(self.min) || !has(self.max) || self.min <= self.max",
    "spec.scaling.min must not be larger than spec.scaling.max",
    field_path=".min",
)


class ScalingMode(StrEnum):
    """Who decides the number of replicas."""

    SLO = "SLO"
    EXTERNAL = "External"
    FIXED = "Fixed"


class ScalingSpec(SpecModel):
    """The number of replicas."""

    model_config = ConfigDict(json_schema_extra=cel.rules(MIN_NOT_ABOVE_MAX))

    mode: ScalingMode = ScalingMode.SLO
    """SLO: the operator, to hold spec.slo. External: an HPA or KEDA on /scale. Fixed: `replicas`."""
    min: Annotated[int, Field(ge=1, le=LARGEST)] = 1
    """Fewest replicas in the modes SLO and External."""
    max: Annotated[int, Field(ge=1, le=LARGEST)] = 8
    """Most replicas in the modes SLO and External."""
    replicas: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    """Replicas in the modes Fixed and External; `kubectl scale` writes it."""
    scale_down_window: Annotated[str, duration.Within("spec.scaling.scaleDownWindow", "0s", "1h")] | None = (
        None
    )
    """How long fewer replicas must have been enough before one is taken away in the mode SLO."""
    advisory: bool = False
    """Compute and report decisions of the mode SLO, but do not act on them."""

    @model_validator(mode="after")
    def _min_not_above_max(self) -> Self:
        MIN_NOT_ABOVE_MAX.check(self.min <= self.max)
        return self
