"""`spec.gate`: how regression evals judge flags and revisions."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from firsttoken_api import duration
from firsttoken_api.base import SpecModel
from firsttoken_api.references import ConfigMapSource


class Placement(StrEnum):
    """Where an eval runs."""

    CANDIDATE = "Candidate"
    DOWNTIME = "Downtime"


class OnFail(StrEnum):
    """What follows a failed eval."""

    DISABLE_FLAGS = "DisableFlags"
    HOLD = "Hold"


class OnInconclusive(StrEnum):
    """What follows an eval without a verdict."""

    PAUSE = "Pause"
    DISABLE_FLAGS = "DisableFlags"


class GateSpec(SpecModel):
    """The regression eval of flags and revisions."""

    suite: ConfigMapSource
    """The questions."""
    placement: Placement = Placement.CANDIDATE
    """Candidate: on a replica of its own. Downtime: in the window, on a serving replica."""
    window: Annotated[str, Field(max_length=64)] = ""
    """Cron expression of the hours in which evals may run. Empty: always."""
    on_fail: OnFail = OnFail.DISABLE_FLAGS
    """What follows a failed eval."""
    on_inconclusive: OnInconclusive = OnInconclusive.PAUSE
    """What follows an eval without a verdict."""
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """Attempts before an eval counts as inconclusive."""
    timeout: Annotated[str, duration.Within("spec.gate.timeout", "1m", "24h")] = "45m"
    """Longest time of one attempt."""
    schedule: Annotated[str, Field(max_length=64)] = ""
    """Cron expression of evals that repeat. Empty: only on changes."""
