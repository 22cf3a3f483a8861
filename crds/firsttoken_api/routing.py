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
    """Secret whose key keys.yaml lists the accepted keys. A change of it reaches running pods."""


class RoutingSpec(SpecModel):
    """Routing between replicas."""

    strategy: RoutingStrategy = RoutingStrategy.PREFIX_AWARE
    """PrefixAware: the replica that holds the prompt's prefix answers, unless it has too much to do.
    LeastBacklog: the one that will answer first. None: the one that the Service chose."""
    auth: AuthSpec | None = None
    """API keys of clients. Absent: everybody may ask."""
