"""What the KV cache needs of a model pod: the host tier's memory and claim, and the prompts that stay cached.

The host tier's follow from cold parameters, in every mode of the flag, so that switching it stays hot. Pure.
"""

from firsttoken_api import inference_service, names, quantity
from firsttoken_operator import flags, objects

HOST_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}host-tier"
PINS_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}cache-pins"


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
    found: list[objects.Object] = []
    if service.spec.cache_pins:
        found.append({"name": PINS_VOLUME, "mountPath": names.CACHE_PINS_FOLDER, "readOnly": True})
    if "claimName" in _tiering(service):
        found.append({"name": HOST_VOLUME, "mountPath": names.HOST_FOLDER})
    return found


def volumes(service: inference_service.InferenceService) -> list[objects.Object]:
    """What `mounts` mounts."""
    found: list[objects.Object] = []
    if service.spec.cache_pins:
        # Named, so that a ConfigMap without it is the kubelet's complaint, before anything starts.
        items = [{"key": names.CACHE_PINS_KEY, "path": names.CACHE_PINS_KEY}]
        config_map = {"name": service.spec.cache_pins.config_map_ref.name, "items": items}
        found.append({"name": PINS_VOLUME, "configMap": config_map})
    if claim := _tiering(service).get("claimName"):
        found.append({"name": HOST_VOLUME, "persistentVolumeClaim": {"claimName": claim}})
    return found
