"""`spec.rollout`: how a new revision replaces the old one. `spec.drain`: how a replica ends."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from firsttoken_api import cel, duration
from firsttoken_api.base import SpecModel

CAN_MOVE = cel.Rule(
    # The guards: defaults are checked before their own fields are filled in.
    "!has(self.maxSurge) || !has(self.maxUnavailable) || self.maxSurge > 0 || self.maxUnavailable > 0",
    "spec.rollout.maxSurge and spec.rollout.maxUnavailable must not both be 0",
    field_path=".maxSurge",
)


class RolloutSpec(SpecModel):
    """How a new revision replaces the old one."""

    model_config = ConfigDict(json_schema_extra=cel.rules(CAN_MOVE))

    max_surge: Annotated[int, Field(ge=0, le=100)] = 1
    """Replicas above the wanted number while a revision rolls out."""
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 0
    """Replicas below the wanted number while a revision rolls out."""
    progress_deadline: Annotated[str, duration.Within("spec.rollout.progressDeadline", "10s", "24h")] = "30m"
    """A revision that makes no progress for this long is rejected; the stable one stays."""
    soak: Annotated[str, duration.Within("spec.rollout.soak", "0s", "24h")] | None = None
    """Time a complete revision is watched before it counts as stable."""
    revision_history_limit: Annotated[int, Field(ge=0, le=50)] = 5
    """Old revisions that are kept."""
    auto_update: bool = False
    """Roll out when a newer operator renders the pods differently, without being asked."""

    @model_validator(mode="after")
    def _can_move(self) -> Self:
        CAN_MOVE.check(self.max_surge > 0 or self.max_unavailable > 0)
        return self


class DrainSpec(SpecModel):
    """How a replica ends."""

    timeout: Annotated[str, duration.Within("spec.drain.timeout", "0s", "1h")] = "120s"
    """Longest time that running requests may take to finish."""
    deregister_delay: Annotated[str, duration.Within("spec.drain.deregisterDelay", "0s", "5m")] = "10s"
    """Time in which a replica still takes new requests while clients learn that it ends."""
