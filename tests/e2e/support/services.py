"""Builders of the services that scenarios apply, and questions about their pods."""

import json
import urllib.request
from typing import Any

from e2e.support.kube import STATE_FOLDER, Kubectl, Object, condition, wait_for
from firsttoken_api import names

MODELS_CLAIM = "models"
MODEL_FILE = "smollm2.gguf"


def namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }


def models_volume(in_namespace: str, folder: str = str(STATE_FOLDER / "models")) -> list[Object]:
    """A claim named `models` in that namespace, bound to a folder of the node."""
    volume = f"models-{in_namespace}"
    size = {"storage": "1Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadOnlyMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"namespace": in_namespace, "name": MODELS_CLAIM},
                "hostPath": {"path": folder, "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": MODELS_CLAIM, "namespace": in_namespace},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        },
    ]


def service(name: str, source: str = f"pvc://{MODELS_CLAIM}/{MODEL_FILE}", **spec: Any) -> Object:
    """A small CPU service of the packaged model in Fixed mode; keywords replace parts of the spec."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.SERVICE_KIND,
        "metadata": {"name": name},
        "spec": {
            "model": {"source": source},
            "runtime": {"device": "cpu", "maxNumSeqs": 16},
            "resources": {"gpus": 0, "cpu": "400m", "memory": "2Gi"},
            "slo": {"ttftP95": "5s"},
            "scaling": {"mode": "Fixed", "replicas": 1},
            **spec,
        },
    }


def serving_pods(kubectl: Kubectl, name: str) -> list[Object]:
    """Pods of that service that are not on their way out."""
    selector = f"{names.LABEL_SERVICE}={name},{names.LABEL_ROLE}={names.ROLE_SERVING}"
    pods = kubectl.list("pods", selector)
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def is_pod_ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def wait_ready(kubectl: Kubectl, name: str, replicas: int = 1, timeout_s: float = 180) -> Object:
    """The service, once it says Ready with that many ready replicas and its pods agree."""

    def probe() -> Object | None:
        found = kubectl.get("infsvc", name)
        is_ready = condition(found, "Ready").get("status") == "True"
        counts = found.get("status", {}).get("replicas", {})
        pods = serving_pods(kubectl, name)
        agree = len(pods) == replicas and all(is_pod_ready(pod) for pod in pods)
        return found if is_ready and counts.get("ready") == replicas and agree else None

    return wait_for(f"{name} ready with {replicas} replicas", probe, timeout_s)


def pod_state(pod: Object) -> Object:
    """The sidecar's `/state`, read over the pod network as the operator reads it."""
    url = f"http://{pod['status']['podIP']}:{names.OPS_PORT}/state"
    with urllib.request.urlopen(url, timeout=5) as answer:
        state: Object = json.load(answer)
    return state
