"""The kind `InferenceService`: a model, its objective, and how it is served."""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel, names, vllm
from firsttoken_api.base import SpecModel
from firsttoken_api.gate import GateSpec
from firsttoken_api.model_spec import ModelSpec
from firsttoken_api.optimizations import Optimizations
from firsttoken_api.pod_template import PodTemplateSpec
from firsttoken_api.resources import ResourcesSpec
from firsttoken_api.rollout import DrainSpec, RolloutSpec
from firsttoken_api.routes import CachePins, Route, check_names
from firsttoken_api.routing import RoutingSpec
from firsttoken_api.runtime_spec import Device, RuntimeSpec
from firsttoken_api.scaling import ScalingSpec
from firsttoken_api.service_spec import ServiceSpec
from firsttoken_api.slo import SloSpec, class_list, joined_classes
from firsttoken_api.status import InferenceServiceStatus

LONGEST_NAME = 40
_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"

NAME_IS_LABEL = cel.Rule(
    f"size(self.metadata.name) <= {LONGEST_NAME} && self.metadata.name.matches('{_NAME_PATTERN}')",
    f"metadata.name must be a DNS label of at most {LONGEST_NAME} characters that starts with a letter",
)
CPU_HAS_NO_GPUS = cel.Rule(
    "self.runtime.device != 'cpu' || !has(self.resources.gpus) || self.resources.gpus == 0",
    "spec.resources.gpus must be 0 or absent where spec.runtime.device is cpu",
    field_path=".resources.gpus",
)
CUDA_HAS_GPUS = cel.Rule(
    "self.runtime.device != 'cuda' || !has(self.resources.gpus) || self.resources.gpus > 0",
    "spec.resources.gpus must be at least 1 or absent where spec.runtime.device is cuda",
    field_path=".resources.gpus",
)

ROUTE_CLASSES_EXIST = cel.Rule(
    "!has(self.routes) || self.routes.all(route, !has(route.class)"
    " || (has(self.slo.classes) && self.slo.classes.exists(each, each.name == route.class)))",
    "spec.routes[].class must be the name of one of spec.slo.classes",
    field_path=".routes",
    message_expression="'spec.routes[].class must be the name of one of spec.slo.classes: '"
    f" + {joined_classes('self.slo.classes')}",
)


class Autopilot(StrEnum):
    """Whether flags are tried without being asked."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class InferenceServiceSpec(SpecModel):
    """What is to be served, and how."""

    model_config = ConfigDict(
        json_schema_extra=cel.rules(
            CPU_HAS_NO_GPUS, CUDA_HAS_GPUS, ROUTE_CLASSES_EXIST, *(each.rule for each in vllm.RULES)
        )
    )

    suspend: bool = False
    """No replicas, whatever `scaling` says."""
    model: ModelSpec
    service: ServiceSpec = ServiceSpec()
    runtime: RuntimeSpec = RuntimeSpec()
    optimizations: Optimizations = ()
    """What is asked of each flag. A flag that is not listed has its default."""
    autopilot: Autopilot = Autopilot.DISABLED
    """Try the flags in roadmap order and keep what passes and pays."""
    resources: ResourcesSpec = ResourcesSpec()
    slo: SloSpec = SloSpec()
    routes: Annotated[
        tuple[Route, ...],
        Field(max_length=16, json_schema_extra=cel.list_map("name")),
        AfterValidator(check_names),
    ] = ()
    """Named kinds of requests with settings of their own: header X-Firsttoken-Route, or the model name
    `<servedName>:<route>`."""
    cache_pins: CachePins | None = None
    scaling: ScalingSpec = ScalingSpec()
    gate: GateSpec | None = None
    rollout: RolloutSpec = RolloutSpec()
    routing: RoutingSpec = RoutingSpec()
    drain: DrainSpec = DrainSpec()
    pod_template: PodTemplateSpec = PodTemplateSpec()

    @model_validator(mode="after")
    def _device_and_gpus_agree(self) -> Self:
        CPU_HAS_NO_GPUS.check(self.runtime.device is not Device.CPU or not self.resources.gpus)
        CUDA_HAS_GPUS.check(self.runtime.device is not Device.CUDA or self.resources.gpus != 0)
        return self

    @model_validator(mode="after")
    def _route_classes_exist(self) -> Self:
        known = self.slo.class_names
        ROUTE_CLASSES_EXIST.check(
            all(route.request_class in (None, *known) for route in self.routes), class_list(known)
        )
        return self

    @model_validator(mode="after")
    def _vllm_has_it(self) -> Self:
        vllm.check(self)
        return self

    @property
    def gpus(self) -> int:
        """GPUs of each replica: what is asked for, else 0 on device cpu and 1 elsewhere."""
        if self.resources.gpus is not None:
            return self.resources.gpus
        return 0 if self.runtime.device is Device.CPU else 1


class ObjectMeta(SpecModel):
    """The part of an object's metadata that we read."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class InferenceService(SpecModel):
    """A model that is served with a time-to-first-token objective."""

    model_config = ConfigDict(json_schema_extra=cel.rules(NAME_IS_LABEL))

    api_version: Literal["firsttoken.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["InferenceService"] = names.SERVICE_KIND
    metadata: ObjectMeta
    spec: InferenceServiceSpec
    status: InferenceServiceStatus = InferenceServiceStatus()

    @model_validator(mode="after")
    def _name_is_label(self) -> Self:
        name = self.metadata.name
        NAME_IS_LABEL.check(len(name) <= LONGEST_NAME and bool(re.search(_NAME_PATTERN, name)))
        return self

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.spec.model.served_name or self.metadata.name


def parse(body: dict[str, Any]) -> InferenceService:
    """The typed form of an object as the API server returns it. Raises pydantic.ValidationError."""
    return InferenceService.model_validate(body)
