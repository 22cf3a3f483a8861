"""What the KV cache needs of a model pod beyond the engine's own memory: the host tier's, and its claim.

Both follow from cold parameters, in every mode of the flag, so that switching `kv-tiering` stays hot. Pure.
"""

from firsttoken_api import inference_service, names, quantity
from firsttoken_operator import flags, objects

HOST_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}host-tier"


def _tiering(service: inference_service.InferenceService) -> dict[str, str]:
    """The parameters of kv-tiering that are not at their defaults."""
    return flags.cold_parameters(service.spec.optimizations).get("kv-tiering", {})


def memory(service: inference_service.InferenceService) -> str:
    """Memory of the engine's container: what the spec gives it, and the host tier on top."""
    given = service.spec.resources.memory
    host = _tiering(service).get("hostMemory")
    return quantity.from_bytes(quantity.to_bytes(given) + quantity.to_bytes(host)) if host else given


def mounts(service: inference_service.InferenceService) -> list[objects.Object]:
    """Of the engine's container."""
    if "claimName" not in _tiering(service):
        return []
    return [{"name": HOST_VOLUME, "mountPath": names.HOST_FOLDER}]


def volumes(service: inference_service.InferenceService) -> list[objects.Object]:
    """What `mounts` mounts."""
    claim = _tiering(service).get("claimName")
    return [{"name": HOST_VOLUME, "persistentVolumeClaim": {"claimName": claim}}] if claim else []
