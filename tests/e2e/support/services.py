"""Builders of the services that scenarios apply, and questions about their pods."""

import json
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from e2e.support.kube import STATE_FOLDER, Kubectl, Object, condition, wait_for
from firsttoken_api import metrics, names

MODELS_CLAIM = "models"
MODEL_FILE = "smollm2.gguf"


def namespace(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }


def claim(name: str, in_namespace: str, folder: str, access_mode: str) -> list[Object]:
    """A claim of that name, bound to a folder of the node that exists."""
    volume = f"{name}-{in_namespace}"
    size = {"storage": "1Gi"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": [access_mode],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"namespace": in_namespace, "name": name},
                "hostPath": {"path": folder, "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": in_namespace},
            "spec": {
                "accessModes": [access_mode],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": size},
            },
        },
    ]


def models_volume(in_namespace: str, folder: str = str(STATE_FOLDER / "models")) -> list[Object]:
    """A claim named `models` in that namespace."""
    return claim(MODELS_CLAIM, in_namespace, folder, "ReadOnlyMany")


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


def pod_metric(pod: Object, metric: metrics.Metric, label: str = "model_name") -> dict[str, float]:
    """Values of a metric that the pod exports, by the value of that label, which tells them apart."""
    url = f"http://{pod['status']['podIP']}:{names.OPS_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        sample.labels[label]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == metric.exposed_name
    }


def wait_applied(kubectl: Kubectl, name: str, newer_than: Object, timeout_s: float = 30) -> Object:
    """The service once newer hot settings than those of the earlier look are in force in every pod."""

    def probe() -> Object | None:
        found = kubectl.get("infsvc", name)
        generation = found["status"]["flagGeneration"]
        is_newer = generation["applied"] > newer_than["status"]["flagGeneration"]["applied"]
        is_true = condition(found, "FlagsApplied").get("status") == "True"
        return found if is_newer and is_true and generation["applied"] == generation["desired"] else None

    return wait_for(f"newer settings of {name} in force", probe, timeout_s, every_s=0.1)


def assert_same_pod(pod: Object, later: Object) -> None:
    """Neither the pod nor one of its containers was restarted in between."""
    assert later["metadata"]["uid"] == pod["metadata"]["uid"]
    statuses = [
        *later["status"]["containerStatuses"],
        *later["status"].get("initContainerStatuses", []),
    ]
    assert [each["restartCount"] for each in statuses] == [0] * len(statuses)
