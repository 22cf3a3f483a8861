"""What routing has counted since the start: where requests went, and how peers failed."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from firsttoken_sidecar.routing import Reason


class PeerFailureReason(StrEnum):
    """How a peer, or finding it, failed; a label of the metric."""

    LOOKUP = "lookup"
    """The name of the peers was not resolved."""
    STATE = "state"
    """Its /state was not answered, or not in a way we understand."""
    CONNECTION = "connection"
    """A request could not be sent, or the connection ended before the answer began."""
    SILENT = "silent"
    """It answered nothing for so long that the request was tried elsewhere."""
    REFUSED = "refused"
    """429: it has no room for this request; 401 or 403: it does not know the key yet."""
    ENGINE = "engine"
    """502: its engine broke off."""
    UNAVAILABLE = "unavailable"
    """503: it drains, starts, or its engine is not there."""


@dataclass
class RouteCounts:
    """Every series exists from the start."""

    routed: Counter[Reason] = field(default_factory=Counter)
    peer_failures: Counter[PeerFailureReason] = field(default_factory=Counter)
