"""Whether a request may join the line of its engine. Pure: facts in, an answer out.

It may when its first token is expected within the limit of its class, by an estimate that is corrected for
what earlier estimates erred by. What cannot be served in time is told so at once, with a time at which it
can: a promise that `reservations` keeps.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from firsttoken_sidecar import correction, stages

QUEUE_PART = 0.25
"""Of the limit, that a request may wait which would break it by its own work alone: it can never be served in
time, and telling it to come again would be a lie."""

MOST_HEADROOM = 0.9
"""Of the room between an empty line and the limit, that is kept for those who were told to return."""


class Reason(StrEnum):
    """Why a request was refused; a label of the metric."""

    OBJECTIVE = "objective"
    """Its first token would come too late."""
    SHARE = "share"
    """It would come in time, but its tenant has more than its share of what waits."""
    RESERVED = "reserved"
    """It would come in time, but what room there is was promised to others."""
    PROMISED = "promised"
    """It would come in time, but before others of its class, and make them late."""
    YIELDED = "yielded"
    """The same, and they are of a less urgent class."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When the first token of a request would come, counted from its arrival. Seconds."""

    expected_s: float
    likely_s: float
    """With what estimates err by; this is what is compared with the limit."""
    limit_s: float

    def header(self) -> str:
        """As the value of `X-Firsttoken-Estimate`."""
        milliseconds = {
            "ttft_ms": round(self.expected_s * 1e3, 1),
            "p90_ms": round(self.likely_s * 1e3, 1),
            "limit_ms": round(self.limit_s * 1e3, 1),
        }
        return msgspec.json.encode(milliseconds).decode()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a request that asks to be let in. Seconds."""

    age_s: float
    """Since it arrived."""
    expected_s: float
    """From now on, until its first token, if nobody more urgent comes meanwhile."""
    overtaken_s: float
    """The same with those who may come; who returns is promised that they do not."""
    base_s: float
    """The same if nobody were ahead of it."""
    alone_s: float
    """The same on an engine that does nothing else."""
    spread: float
    """What estimates err by; see `correction`."""
    part: float = 1.0
    """Of the room between `base_s` and the limit, what its tenant may use now, 0..1."""
    headroom_s: float = 0.0
    """Of that room, what is promised to others."""
    is_returning: bool = False
    """It was promised to be let in about now."""
    has_less_than_share: bool = False
    """Other tenants compete with its own, and have more of what waits."""
    makes_others_late: bool = False
    """Of its class, who were let in and would now be too late."""
    yields: bool = False
    """To less urgent ones, who were let in and would now be too late."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Welcome."""

    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Refused:
    """Not now."""

    estimate: Estimate
    reason: Reason
    room_in_s: float
    """Until there is room for it if nobody else comes."""


def decide(facts: Facts, limit_s: float) -> Admitted | Refused:
    """limit_s: of its class."""
    likely_s = facts.age_s + correction.likely_s(facts.overtaken_s, facts.spread, limit_s)
    base_s = facts.age_s + correction.likely_s(facts.base_s, facts.spread, limit_s)
    alone_s = facts.age_s + correction.likely_s(facts.alone_s, facts.spread, limit_s)
    estimate = Estimate(facts.age_s + facts.expected_s, likely_s, limit_s)
    reachable_s = max(limit_s, alone_s + QUEUE_PART * limit_s)
    if likely_s > reachable_s:
        return Refused(estimate, Reason.OBJECTIVE, likely_s - reachable_s)
    room_s = max(reachable_s - base_s, 0.0)
    queued_s = likely_s - base_s
    if not facts.is_returning and queued_s > room_s * facts.part:
        return Refused(estimate, Reason.SHARE, queued_s - room_s * facts.part)
    headroom_s = min(facts.headroom_s, MOST_HEADROOM * room_s)
    if not facts.is_returning and queued_s > room_s - headroom_s:
        return Refused(estimate, Reason.RESERVED, queued_s - room_s + headroom_s)
    if facts.is_returning:
        return Admitted(estimate)
    if facts.makes_others_late and not facts.has_less_than_share:
        return Refused(estimate, Reason.PROMISED, max(queued_s, 0.0))
    if facts.yields:
        return Refused(estimate, Reason.YIELDED, max(queued_s, 0.0))
    return Admitted(estimate)


class Ticket(Protocol):
    """A request that was let in, and is told what becomes of it. Each call may come twice, or never."""

    @property
    def estimate(self) -> Estimate | None:
        """What it was let in with; None: nothing limits, or nothing was known."""
        ...

    def sent(self) -> None:
        """It is on its way to the engine."""
        ...

    def first_content(self, ttft_s: float, stamps: "stages.Stamps | None") -> None:
        """Its first content was written, so long after its arrival."""
        ...

    def closed(self, completion_tokens: int | None = None) -> None:
        """It ended, well or not, or its client left. The last call. completion_tokens: where known."""
        ...
