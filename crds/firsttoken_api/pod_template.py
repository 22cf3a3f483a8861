"""`spec.podTemplate`: what people may add to the pods. Closed and typed, so that nothing can undo our own
settings and the CRD stays small."""

from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel, names
from firsttoken_api.affinity import Affinity, LabelMap, Toleration, TopologySpreadConstraint
from firsttoken_api.base import SpecModel
from firsttoken_api.references import LabelKey, LocalReference, Name
from firsttoken_api.volumes import Volume, VolumeMount

_OUR_PREFIXES = (f"{names.GROUP}/", "app.kubernetes.io/")
_KEYS_EXPRESSION = "self.all(key, " + " && ".join(f"!key.startsWith('{p}')" for p in _OUR_PREFIXES) + ")"

LABELS_ARE_FREE = cel.Rule(
    _KEYS_EXPRESSION,
    "spec.podTemplate.labels keys must not start with " + " or ".join(_OUR_PREFIXES),
)
ANNOTATIONS_ARE_FREE = cel.Rule(
    _KEYS_EXPRESSION,
    "spec.podTemplate.annotations keys must not start with " + " or ".join(_OUR_PREFIXES),
)
MOUNTS_HAVE_VOLUMES = cel.Rule(
    "!has(self.volumeMounts) || self.volumeMounts.all(mount,"
    " has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name))",
    "spec.podTemplate.volumeMounts[].name must be the name of one of spec.podTemplate.volumes",
    field_path=".volumeMounts",
)


def _are_free(keys: dict[str, str], rule: cel.Rule) -> dict[str, str]:
    rule.check(not any(key.startswith(_OUR_PREFIXES) for key in keys))
    return keys


class PodTemplateSpec(SpecModel):
    """Additions to the pods of every replica."""

    model_config = ConfigDict(json_schema_extra=cel.rules(MOUNTS_HAVE_VOLUMES))

    labels: Annotated[
        LabelMap,
        Field(json_schema_extra=cel.rules(LABELS_ARE_FREE)),
        AfterValidator(lambda keys: _are_free(keys, LABELS_ARE_FREE)),
    ] = Field(default_factory=dict)
    """More labels of the pods."""
    annotations: Annotated[
        dict[LabelKey, Annotated[str, Field(max_length=4096)]],
        Field(max_length=32, json_schema_extra=cel.rules(ANNOTATIONS_ARE_FREE)),
        AfterValidator(lambda keys: _are_free(keys, ANNOTATIONS_ARE_FREE)),
    ] = Field(default_factory=dict)
    """More annotations of the pods."""
    node_selector: LabelMap = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints that the pods tolerate."""
    affinity: Affinity | None = None
    """Placement, as in any pod."""
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], Field(max_length=8)] = ()
    """How replicas are spread over zones or nodes."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods."""
    runtime_class_name: Name | None = None
    """RuntimeClass of the pods."""
    scheduler_name: Name | None = None
    """Scheduler of the pods."""
    image_pull_secrets: Annotated[tuple[LocalReference, ...], Field(max_length=8)] = ()
    """Secrets for pulling images, beside those of the installation."""
    service_account_name: Name | None = None
    """Absent: the namespace's default. Its token is never mounted."""
    fs_group: Annotated[int, Field(ge=1, le=4_294_967_295)] | None = None
    """Group that owns the volumes. Absent: 10001."""
    supplemental_groups: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4_294_967_295)], ...], Field(max_length=16)
    ] = ()
    """More groups of the processes."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16, json_schema_extra=cel.list_map("name"))] = ()
    """More volumes of the pod."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], Field(max_length=16, json_schema_extra=cel.list_map("mountPath"))
    ] = ()
    """Where the engine sees them."""

    @model_validator(mode="after")
    def _mounts_have_volumes(self) -> Self:
        volumes = {volume.name for volume in self.volumes}
        MOUNTS_HAVE_VOLUMES.check(all(mount.name in volumes for mount in self.volume_mounts))
        return self
