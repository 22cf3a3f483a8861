"""`spec.resources`: what one replica's engine is given."""

from typing import Annotated

from pydantic import Field

from firsttoken_api import quantity
from firsttoken_api.base import SpecModel


class ResourcesSpec(SpecModel):
    """Requests of the engine container of each replica; memory is a limit too."""

    gpu_resource: Annotated[
        str, Field(max_length=253, pattern=r"^[a-z0-9][-a-z0-9.]*/[A-Za-z0-9][-A-Za-z0-9_.]*$")
    ] = "nvidia.com/gpu"
    """Name of the extended resource that counts GPUs."""
    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs of each replica. Absent: 0 where `spec.runtime.device` is `cpu`, else 1."""
    cpu: Annotated[str, quantity.CpuWithin("spec.resources.cpu", "10m", "1024")] = "4"
    """CPU request of the engine."""
    memory: Annotated[str, quantity.BytesWithin("spec.resources.memory", "64Mi", "16Ti")] = "16Gi"
    """Memory request and limit of the engine."""
