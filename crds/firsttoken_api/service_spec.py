"""`spec.service`: how clients reach the service."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from firsttoken_api import cel
from firsttoken_api.base import SpecModel
from firsttoken_api.references import LabelKey

NODE_PORT_NEEDS_TYPE = cel.Rule(
    "!has(self.nodePort) || self.type in ['NodePort', 'LoadBalancer']",
    "spec.service.nodePort needs spec.service.type NodePort or LoadBalancer",
    field_path=".nodePort",
)


class ServiceType(StrEnum):
    """Type of the Kubernetes Service."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ServiceSpec(SpecModel):
    """The Kubernetes Service in front of the replicas."""

    model_config = ConfigDict(json_schema_extra=cel.rules(NODE_PORT_NEEDS_TYPE))

    type: ServiceType = ServiceType.CLUSTER_IP
    """Type of the Kubernetes Service."""
    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port of the Service."""
    node_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port on every node. Absent: Kubernetes chooses one. Must lie in the cluster's node port range."""
    annotations: Annotated[dict[LabelKey, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] = (
        Field(default_factory=dict)
    )
    """Annotations of the Service, for load balancers and meshes."""

    @model_validator(mode="after")
    def _node_port_needs_type(self) -> Self:
        NODE_PORT_NEEDS_TYPE.check(self.node_port is None or self.type is not ServiceType.CLUSTER_IP)
        return self
