"""`spec.podTemplate.affinity` and its neighbours: the scheduling part of a pod, as Kubernetes defines it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from firsttoken_api.base import SpecModel
from firsttoken_api.references import LabelKey, LabelValue

LabelMap = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]


class LabelOperator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeOperator(StrEnum):
    """How a node's label or field is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class LabelRequirement(SpecModel):
    """One comparison of a label selector."""

    key: LabelKey
    operator: LabelOperator
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()


class LabelSelector(SpecModel):
    """Selects objects by their labels."""

    match_labels: LabelMap = Field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=16)] = ()


class NodeRequirement(SpecModel):
    """One comparison of a node selector."""

    key: LabelKey
    operator: NodeOperator
    values: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=64)] = ()


class NodeSelectorTerm(SpecModel):
    """Comparisons that all must hold."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(max_length=16)] = ()
    match_fields: Annotated[tuple[NodeRequirement, ...], Field(max_length=16)] = ()


class NodeSelector(SpecModel):
    """Terms of which one must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=16)]


class PreferredNodes(SpecModel):
    """Nodes that are preferred."""

    weight: Annotated[int, Field(ge=1, le=100)]
    preference: NodeSelectorTerm


class NodeAffinity(SpecModel):
    """Which nodes are allowed and preferred."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=16)
    ] = ()


class PodAffinityTerm(SpecModel):
    """Pods near which, or far from which, a replica is placed."""

    label_selector: LabelSelector | None = None
    topology_key: Annotated[str, Field(min_length=1, max_length=317)]
    namespaces: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=16)] = ()
    namespace_selector: LabelSelector | None = None


class PreferredPods(SpecModel):
    """Pods near which, or far from which, a replica is preferably placed."""

    weight: Annotated[int, Field(ge=1, le=100)]
    pod_affinity_term: PodAffinityTerm


class PodAffinity(SpecModel):
    """Placement relative to other pods."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], Field(max_length=16)
    ] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredPods, ...], Field(max_length=16)
    ] = ()


class Affinity(SpecModel):
    """Placement of replicas."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TolerationOperator(StrEnum):
    """How a taint is compared."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(SpecModel):
    """A taint that replicas tolerate."""

    key: LabelKey | None = None
    operator: TolerationOperator | None = None
    value: LabelValue | None = None
    effect: TaintEffect | None = None
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None


class Unsatisfiable(StrEnum):
    """What happens when replicas cannot be spread."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class TopologySpreadConstraint(SpecModel):
    """How replicas are spread over zones or nodes."""

    max_skew: Annotated[int, Field(ge=1, le=100)]
    topology_key: Annotated[str, Field(min_length=1, max_length=317)]
    when_unsatisfiable: Unsatisfiable
    label_selector: LabelSelector | None = None
    """Absent: the replicas of this service."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
