"""The kinds of object the operator reads or writes, and where the API server keeps them.

Fixed here instead of discovered: discovery costs a round of requests at each start, its cache file goes
stale, and an optional kind that is missing must not stop anything.
"""

from dataclasses import dataclass

from firsttoken_api import names


@dataclass(frozen=True)
class Kind:
    """One kind of namespaced object."""

    name: str
    api_version: str
    plural: str

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path; no namespace means all namespaces."""
        parts = ["apis" if self.group else "api", self.api_version]
        parts += ["namespaces", namespace] if namespace else []
        parts.append(self.plural)
        parts += [name] if name else []
        parts += [subresource] if subresource else []
        return "/" + "/".join(parts)


INFERENCE_SERVICE = Kind(names.SERVICE_KIND, names.API_VERSION, names.SERVICE_PLURAL)
POD = Kind("Pod", "v1", "pods")
SERVICE = Kind("Service", "v1", "services")
CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
EVENT = Kind("Event", "v1", "events")
DEPLOYMENT = Kind("Deployment", "apps/v1", "deployments")
REPLICA_SET = Kind("ReplicaSet", "apps/v1", "replicasets")
CONTROLLER_REVISION = Kind("ControllerRevision", "apps/v1", "controllerrevisions")
DISRUPTION_BUDGET = Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
JOB = Kind("Job", "batch/v1", "jobs")
LEASE = Kind("Lease", "coordination.k8s.io/v1", "leases")

CHILDREN = (
    POD,
    SERVICE,
    CONFIG_MAP,
    DEPLOYMENT,
    REPLICA_SET,
    CONTROLLER_REVISION,
    DISRUPTION_BUDGET,
    JOB,
)
"""What is watched with the selector `firsttoken.dev/managed=true`."""

BY_NAME: dict[str, Kind] = {kind.name: kind for kind in (INFERENCE_SERVICE, EVENT, LEASE, *CHILDREN)}
