"""One request that asks for tokens, as the gateway's parts see it: who asks, for what, and since when."""

from dataclasses import dataclass

from firsttoken_sidecar.caller import Caller
from firsttoken_sidecar.inspection import Inspected


@dataclass(frozen=True)
class Arrival:
    """A request that has come in and is not yet answered."""

    request_id: str
    arrival_s: float
    """At the first sidecar, on this process's monotonic clock."""
    caller: Caller
    inspected: Inspected
    client: str
    """Whom a repeated request is recognized by: the key's name, or the address where there are no keys."""
    is_forwarded: bool = False
    """It came from a peer: it is never sent on again."""
