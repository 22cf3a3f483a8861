"""Whether a request may join the line of its engine. Pure: facts in, an answer out.

It may when its first token is expected within the limit of its class, by an estimate that is corrected for
what earlier estimates erred by. What cannot be served in time is told so at once, with a time at which it
can: a promise that `reservations` keeps.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from firsttoken_sidecar import stages


class Reason(StrEnum):
    """Why a request was refused; a label of the metric."""

    OBJECTIVE = "objective"
    """Its first token would come too late."""
    SHARE = "share"
    """The same, and its tenant has more than its share of what waits."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Welcome. `expected_s`: until the first token, as estimated; `likely_s`: with the errors of estimates."""

    expected_s: float
    likely_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Not now."""

    reason: Reason
    likely_s: float
    limit_s: float
    retry_after_s: int


class Ticket(Protocol):
    """A request that was let in, and is told what becomes of it. Each call may come twice, or never."""

    def sent(self) -> None:
        """It is on its way to the engine."""
        ...

    def first_content(self, ttft_s: float, stamps: "stages.Stamps | None") -> None:
        """Its first content was written, so long after its arrival."""
        ...

    def closed(self) -> None:
        """It ended, well or not, or its client left. The last call."""
        ...
