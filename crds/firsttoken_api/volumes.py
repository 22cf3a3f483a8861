"""`spec.podTemplate.volumes` and `volumeMounts`: more files for the engine. A closed list of kinds."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel, names, quantity
from firsttoken_api.base import SpecModel
from firsttoken_api.references import LocalReference, Name

RESERVED_PATHS = (
    names.MODELS_FOLDER,
    "/etc/firsttoken",
    "/var/lib/firsttoken",
    names.RUN_FOLDER,
    "/tmp",
    "/dev",
    "/proc",
    "/sys",
)

ONE_KIND = cel.Rule(
    "[has(self.emptyDir), has(self.configMap), has(self.secret),"
    " has(self.persistentVolumeClaim), has(self.csi)]"
    ".filter(is_set, is_set).size() == 1",
    "spec.podTemplate.volumes[] needs exactly one of emptyDir, configMap, secret, persistentVolumeClaim, csi",
)
NAME_IS_FREE = cel.Rule(
    f"!self.startsWith('{names.RESERVED_VOLUME_PREFIX}')",
    f"spec.podTemplate.volumes[].name must not start with {names.RESERVED_VOLUME_PREFIX}, "
    "which the operator uses",
)
PATH_IS_FREE = cel.Rule(
    f"self.startsWith('/') && !{cel.quoted_list(RESERVED_PATHS)}"
    ".exists(ours, self == ours || self.startsWith(ours + '/'))",
    "spec.podTemplate.volumeMounts[].mountPath must be absolute and outside " + ", ".join(RESERVED_PATHS),
)
VOLUME_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def _check_name(name: str) -> str:
    NAME_IS_FREE.check(not name.startswith(names.RESERVED_VOLUME_PREFIX))
    return name


def _check_path(path: str) -> str:
    taken = any(path == ours or path.startswith(ours + "/") for ours in RESERVED_PATHS)
    PATH_IS_FREE.check(path.startswith("/") and not taken)
    return path


VolumeName = Annotated[
    str,
    Field(
        min_length=1, max_length=63, pattern=VOLUME_NAME_PATTERN, json_schema_extra=cel.rules(NAME_IS_FREE)
    ),
    AfterValidator(_check_name),
]


class Medium(StrEnum):
    """What an emptyDir is made of."""

    MEMORY = "Memory"


class EmptyDir(SpecModel):
    """An empty folder that lives as long as the pod."""

    medium: Medium | None = None
    size_limit: (
        Annotated[str, quantity.BytesWithin("spec.podTemplate.volumes[].emptyDir.sizeLimit", "1Ki", "16Ti")]
        | None
    ) = None


class KeyToPath(SpecModel):
    """One key of a ConfigMap or Secret as a file."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    path: Annotated[str, Field(min_length=1, max_length=512)]
    mode: Annotated[int, Field(ge=0, le=511)] | None = None


class ConfigMapVolume(SpecModel):
    """The keys of a ConfigMap as files."""

    name: Name
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=64)] = ()
    default_mode: Annotated[int, Field(ge=0, le=511)] | None = None
    optional: bool | None = None


class SecretVolume(SpecModel):
    """The keys of a Secret as files."""

    secret_name: Name
    items: Annotated[tuple[KeyToPath, ...], Field(max_length=64)] = ()
    default_mode: Annotated[int, Field(ge=0, le=511)] | None = None
    optional: bool | None = None


class ClaimVolume(SpecModel):
    """A PersistentVolumeClaim."""

    claim_name: Name
    read_only: bool | None = None


class CsiVolume(SpecModel):
    """A volume that a CSI driver makes for the pod."""

    driver: Annotated[str, Field(min_length=1, max_length=253)]
    read_only: bool | None = None
    fs_type: Annotated[str, Field(max_length=32)] | None = None
    volume_attributes: Annotated[
        dict[Annotated[str, Field(max_length=253)], Annotated[str, Field(max_length=1024)]],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    node_publish_secret_ref: LocalReference | None = None


class Volume(SpecModel):
    """One volume of exactly one kind."""

    model_config = ConfigDict(json_schema_extra=cel.rules(ONE_KIND))

    name: VolumeName
    empty_dir: EmptyDir | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    csi: CsiVolume | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds: list[Any] = [
            self.empty_dir,
            self.config_map,
            self.secret,
            self.persistent_volume_claim,
            self.csi,
        ]
        ONE_KIND.check(sum(kind is not None for kind in kinds) == 1)
        return self


class VolumeMount(SpecModel):
    """A volume in the engine container."""

    name: VolumeName
    mount_path: Annotated[
        str,
        Field(min_length=1, max_length=512, json_schema_extra=cel.rules(PATH_IS_FREE)),
        AfterValidator(_check_path),
    ]
    sub_path: Annotated[str, Field(max_length=512)] | None = None
    read_only: bool | None = None
