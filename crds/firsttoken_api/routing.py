"""`spec.routing`: which replica answers a request, and who may ask."""

from enum import StrEnum

from firsttoken_api.base import SpecModel
from firsttoken_api.references import LocalReference


class RoutingStrategy(StrEnum):
    """How a sidecar chooses the replica."""

    PREFIX_AWARE = "PrefixAware"
    LEAST_BACKLOG = "LeastBacklog"
    NONE = "None"


class AuthSpec(SpecModel):
    """API keys of clients."""

    secret_ref: LocalReference
    """Secret whose values are accepted keys."""


class RoutingSpec(SpecModel):
    """Routing between replicas."""

    strategy: RoutingStrategy | None = None
    """None: the replica that the Service chose answers."""
    auth: AuthSpec | None = None
    """API keys of clients. Absent: everybody may ask."""
