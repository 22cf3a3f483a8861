"""What all objects that we make have in common: labels, owner, and how they are hashed. Pure.

Every object carries the managed label, by which the watches select, and an owner reference, by which
Kubernetes deletes it with the service even while no operator runs.
"""

import hashlib
import json
from typing import Any

from firsttoken_api import inference_service, names
from firsttoken_api.base import SpecModel

Object = dict[str, Any]


def digest(value: Any, length: int = 10) -> str:
    """Hex hash of a JSON value that does not depend on key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def labels(service: str, role: str, revision: str | None = None) -> dict[str, str]:
    """Labels of everything we make; `role` is also the recommended component label."""
    common = {
        names.LABEL_MANAGED: "true",
        names.LABEL_SERVICE: service,
        names.LABEL_ROLE: role,
        "app.kubernetes.io/name": names.MANAGED_BY,
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": names.MANAGED_BY,
    }
    return common | ({names.LABEL_REVISION: revision} if revision else {})


def serving_selector(service: str) -> dict[str, str]:
    """What Service, peers, PodDisruptionBudget and `status.selector` select."""
    return {names.LABEL_SERVICE: service, names.LABEL_ROLE: names.ROLE_SERVING}


def owner_reference(service: inference_service.InferenceService) -> Object:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.SERVICE_KIND,
        "name": service.metadata.name,
        "uid": service.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(
    service: inference_service.InferenceService, name: str, role: str, revision: str | None = None
) -> Object:
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels(service.metadata.name, role, revision),
        "ownerReferences": [owner_reference(service)],
    }


def wire(value: SpecModel) -> Object:
    """What the user wrote, in the API's spelling, without what has its default."""
    return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
