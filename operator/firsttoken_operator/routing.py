"""What `spec.routing` puts into a model pod: its sidecar's peers, and the API keys it asks for. Pure.

Where neither is asked for, nothing is added: the template is that of a version without routing.
"""

from firsttoken_api import inference_service, names
from firsttoken_api.routing import RoutingStrategy
from firsttoken_operator import objects

AUTH_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}auth"
_PEERS_HOST = "FIRSTTOKEN_PEERS_HOST"
_KEYS_MODE = 0o440
"""Readable by the pod's group, which `fsGroup` makes the owner."""


def _has_peers(service: inference_service.InferenceService) -> bool:
    return service.spec.routing.strategy is not RoutingStrategy.NONE


def env(service: inference_service.InferenceService) -> list[objects.Object]:
    """Of the sidecar's container."""
    found: list[objects.Object] = []
    if _has_peers(service):
        host = f"{names.peers_service(service.metadata.name)}.{service.metadata.namespace}.svc"
        found += [
            {"name": _PEERS_HOST, "value": host},
            {"name": "FIRSTTOKEN_ROUTING_STRATEGY", "value": service.spec.routing.strategy.value},
            {"name": "FIRSTTOKEN_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
    if service.spec.routing.auth:
        found.append({"name": "FIRSTTOKEN_AUTH_FOLDER", "value": names.AUTH_FOLDER})
    return found


def mounts(service: inference_service.InferenceService) -> list[objects.Object]:
    """Of the sidecar's container; the engine never sees a key."""
    if not service.spec.routing.auth:
        return []
    # A folder, never a subPath: only then does a change of the Secret reach a running pod.
    return [{"name": AUTH_VOLUME, "mountPath": names.AUTH_FOLDER, "readOnly": True}]


def volumes(service: inference_service.InferenceService) -> list[objects.Object]:
    """What `mounts` mounts."""
    auth = service.spec.routing.auth
    if not auth:
        return []
    # Named and not optional, so that a Secret without it is the kubelet's complaint, before anything starts.
    items = [{"key": names.KEYS_FILE, "path": names.KEYS_FILE}]
    secret = {
        "secretName": auth.secret_ref.name,
        "items": items,
        "defaultMode": _KEYS_MODE,
        "optional": False,
    }
    return [{"name": AUTH_VOLUME, "secret": secret}]


def pod_info(service: inference_service.InferenceService) -> list[objects.Object]:
    """Items of the downward API. The labels tell the zone, where the cluster puts it on pods."""
    if not _has_peers(service):
        return []
    return [{"path": names.POD_LABELS_FILE, "fieldRef": {"fieldPath": "metadata.labels"}}]


def has_peers(template: objects.Object) -> bool:
    """Whether the sidecar of a recorded template knows its peers."""
    return any(
        each["name"] == _PEERS_HOST
        for container in template["spec"]["initContainers"]
        for each in container.get("env", [])
    )
