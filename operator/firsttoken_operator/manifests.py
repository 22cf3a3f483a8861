"""The objects a service is made of, as plain JSON. Pure.

A pod template is rendered once per revision and then kept (see `revisions`); everything else is rendered at
each reconcile. Every object carries the managed label, by which the watches select, and an owner reference,
by which Kubernetes deletes it with the service even while no operator runs.
"""

import hashlib
import json
import math
from typing import Any

from firsttoken_api import duration, hot_settings, inference_service, names, quantity
from firsttoken_api.base import SpecModel
from firsttoken_operator import settings

Object = dict[str, Any]

USER_ID = 10_001
ENGINE_PATIENCE_S = 120
"""How long the engine's server may take to bind its port; loading afterwards is judged by progress."""
RESOLVER_DEADLINE_S = 3_600
LIVENESS_FAILURES = 6
LIVENESS_TIMEOUT_S = 10
"""Slow is not dead: on a node short of processor time a restart loses every stream and makes the shortage
worse. An engine that died says so at once and is restarted after 30 s; one that is only late has a minute.
"""
GRACE_MARGIN_S = 15

_FLAGS_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}flags"
_INFO_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}pod"
_RUN_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}run"
_MODELS_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}models"
_TMP_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}tmp"
_SIDECAR_TMP_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}sidecar-tmp"

_CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


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


def _metadata(
    service: inference_service.InferenceService, name: str, role: str, revision: str | None = None
) -> Object:
    return {
        "name": name,
        "namespace": service.metadata.namespace,
        "labels": labels(service.metadata.name, role, revision),
        "ownerReferences": [owner_reference(service)],
    }


def _wire(value: SpecModel) -> Object:
    """What the user wrote, in the API's spelling, without what has its default."""
    return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def pod_template(
    service: inference_service.InferenceService, images: settings.Images, revision: str
) -> Object:
    """The model pod: native sidecar and engine, restricted Pod Security, no service-account token."""
    spec = service.spec
    extra = spec.pod_template
    drain_s = duration.to_seconds(spec.drain.timeout)
    deregister_s = duration.to_seconds(spec.drain.deregister_delay)
    pull_secrets = dict.fromkeys((*images.pull_secrets, *(each.name for each in extra.image_pull_secrets)))
    pod: Object = {
        "terminationGracePeriodSeconds": math.ceil(drain_s + deregister_s) + GRACE_MARGIN_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(extra.fs_group, extra.supplemental_groups),
        "initContainers": [_sidecar(service, images, drain_s, deregister_s)],
        "containers": [_engine(service, images)],
        "volumes": [
            {
                "name": _FLAGS_VOLUME,
                "configMap": {"name": names.flags_config_map(service.metadata.name, revision)},
            },
            {
                "name": _INFO_VOLUME,
                "downwardAPI": {
                    "items": [
                        {
                            "path": names.POD_ANNOTATIONS_FILE,
                            "fieldRef": {"fieldPath": "metadata.annotations"},
                        }
                    ]
                },
            },
            {"name": _RUN_VOLUME, "emptyDir": {}},
            {"name": _TMP_VOLUME, "emptyDir": {}},
            {"name": _SIDECAR_TMP_VOLUME, "emptyDir": {}},
            _models_volume(service),
            *(_wire(volume) | _empty_kinds(volume) for volume in extra.volumes),
        ],
    }
    if pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    for key in (
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "runtimeClassName",
        "schedulerName",
        "serviceAccountName",
    ):
        value = _wire(extra).get(key)
        if value:
            pod[key] = value
    if extra.topology_spread_constraints:
        pod["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": serving_selector(service.metadata.name)}} | _wire(each)
            for each in extra.topology_spread_constraints
        ]
    metadata: Object = {
        "labels": dict(extra.labels) | labels(service.metadata.name, names.ROLE_SERVING, revision)
    }
    if extra.annotations:
        metadata["annotations"] = dict(extra.annotations)
    return {"metadata": metadata, "spec": pod}


def _empty_kinds(volume: SpecModel) -> Object:
    # `emptyDir: {}` means something although every field of it has its default.
    return {
        key: {}
        for key, value in volume.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        if isinstance(value, dict) and key not in _wire(volume)
    }


def _pod_security(fs_group: int | None = None, groups: tuple[int, ...] = ()) -> Object:
    security: Object = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": fs_group or USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if groups:
        security["supplementalGroups"] = list(groups)
    return security


def _models_volume(service: inference_service.InferenceService) -> Object:
    claim = {"claimName": service.spec.model.claim_name, "readOnly": True}
    return {"name": _MODELS_VOLUME, "persistentVolumeClaim": claim}


def model_path(service: inference_service.InferenceService) -> str:
    """Where the engine and the resolver see the model."""
    return f"{names.MODELS_FOLDER}/{service.spec.model.path}"


def runtime_image(service: inference_service.InferenceService, images: settings.Images) -> str:
    return service.spec.runtime.image or images.runtime


def _probe(path: str, period_s: int, failures: int, timeout_s: int = 3) -> Object:
    return {
        "httpGet": {"path": path, "port": names.OPS_PORT, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _sidecar(
    service: inference_service.InferenceService,
    images: settings.Images,
    drain_s: float,
    deregister_s: float,
) -> Object:
    return {
        "name": names.SIDECAR_CONTAINER,
        "image": images.sidecar,
        "imagePullPolicy": images.pull_policy,
        "restartPolicy": "Always",
        "command": ["python", "-m", "firsttoken_sidecar"],
        "env": [
            {"name": "FIRSTTOKEN_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FIRSTTOKEN_DEREGISTER_DELAY_S", "value": f"{deregister_s:g}"},
            {"name": "FIRSTTOKEN_DRAIN_TIMEOUT_S", "value": f"{drain_s:g}"},
            {"name": "FIRSTTOKEN_LOG_LEVEL", "value": "info"},
            {"name": "FIRSTTOKEN_LOG_FORMAT", "value": "json"},
            {"name": "HOME", "value": "/tmp"},
        ],
        "ports": [
            {"name": names.HTTP_PORT_NAME, "containerPort": names.HTTP_PORT, "protocol": "TCP"},
            {"name": names.OPS_PORT_NAME, "containerPort": names.OPS_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": _probe("/readyz", 2, 3),
        "livenessProbe": _probe("/livez", 10, LIVENESS_FAILURES, LIVENESS_TIMEOUT_S),
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": _FLAGS_VOLUME, "mountPath": names.FLAGS_FOLDER, "readOnly": True},
            {"name": _INFO_VOLUME, "mountPath": names.POD_INFO_FOLDER, "readOnly": True},
            {"name": _RUN_VOLUME, "mountPath": names.RUN_FOLDER},
            {"name": _SIDECAR_TMP_VOLUME, "mountPath": "/tmp"},
        ],
    }


def engine_threads(cpu: str) -> int:
    """Compute threads for a CPU request: whole CPUs, rounded up.

    Engines that share a node must not each take all of its cores: a step ends with its slowest thread,
    and one that waits for a core stalls the others at every barrier.
    """
    return max(1, math.ceil(quantity.to_millicores(cpu) / 1000))


def _engine(service: inference_service.InferenceService, images: settings.Images) -> Object:
    spec = service.spec
    runtime = spec.runtime
    return {
        "name": names.ENGINE_CONTAINER,
        "image": runtime_image(service, images),
        "imagePullPolicy": images.pull_policy,
        "args": [
            "serve",
            model_path(service),
            "--host=127.0.0.1",
            f"--port={names.ENGINE_HTTP_PORT}",
            f"--ops-port={names.ENGINE_OPS_PORT}",
            f"--served-name={service.served_name}",
            f"--device={runtime.device.value}",
            f"--dtype={runtime.dtype.value}",
            f"--max-model-len={runtime.max_model_len}",
            f"--memory-fraction={runtime.memory_fraction}",
            f"--max-num-seqs={runtime.max_num_seqs}",
            f"--max-num-batched-tokens={runtime.max_num_batched_tokens}",
            f"--max-prefill-batch={runtime.max_prefill_batch}",
            f"--threads={engine_threads(spec.resources.cpu)}",
            f"--flags-file={names.FLAGS_FOLDER}/{names.FLAGS_KEY}",
            "--log-format=json",
            *runtime.extra_args,
        ],
        # Keyed by name: a create lets a variable that is named twice through, every later apply is refused.
        "env": [
            {"name": name, "value": value}
            for name, value in ({"HOME": "/tmp"} | {each.name: each.value for each in runtime.env}).items()
        ],
        "startupProbe": _probe("/engine/startupz", 2, ENGINE_PATIENCE_S // 2),
        "livenessProbe": _probe("/engine/livez", 5, LIVENESS_FAILURES, LIVENESS_TIMEOUT_S),
        "lifecycle": {"preStop": {"exec": {"command": ["python", "-m", "firsttoken_runtime.drain"]}}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": _resources(service),
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": _FLAGS_VOLUME, "mountPath": names.FLAGS_FOLDER, "readOnly": True},
            {"name": _MODELS_VOLUME, "mountPath": names.MODELS_FOLDER, "readOnly": True},
            {"name": _RUN_VOLUME, "mountPath": names.RUN_FOLDER},
            {"name": _TMP_VOLUME, "mountPath": "/tmp"},
            *(_wire(mount) for mount in spec.pod_template.volume_mounts),
        ],
    }


def _resources(service: inference_service.InferenceService) -> Object:
    resources = service.spec.resources
    limits: Object = {"memory": resources.memory}
    if service.spec.gpus:
        limits[resources.gpu_resource] = str(service.spec.gpus)
    return {"requests": {"cpu": resources.cpu, **limits}, "limits": limits}


def deployment(
    service: inference_service.InferenceService, revision: str, template: Object, replicas: int
) -> Object:
    """One revision's pods. The template never changes, so the strategy only matters after a hand edit."""
    name = service.metadata.name
    metadata = _metadata(service, names.revision_name(name, revision), names.ROLE_SERVING, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": serving_selector(name) | {names.LABEL_REVISION: revision}},
            "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": max(
                1, math.ceil(duration.to_seconds(service.spec.rollout.progress_deadline))
            ),
            "revisionHistoryLimit": 1,
        },
    }


def controller_revision(
    service: inference_service.InferenceService, revision: str, number: int, data: Object
) -> Object:
    """The immutable record of a revision: what was asked for, and the template made of it."""
    name = names.revision_name(service.metadata.name, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": _metadata(service, name, names.ROLE_SERVING, revision),
        "revision": number,
        "data": data,
    }


def flags_config_map(
    service: inference_service.InferenceService, revision: str, document: hot_settings.HotSettings
) -> Object:
    name = service.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(service, names.flags_config_map(name, revision), names.ROLE_SERVING, revision),
        "data": {names.FLAGS_KEY: document.model_dump_json()},
    }


def traffic_service(service: inference_service.InferenceService) -> Object:
    """What clients talk to."""
    spec = service.spec.service
    port: Object = {
        "name": names.HTTP_PORT_NAME,
        "port": spec.port,
        "targetPort": names.HTTP_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    if spec.node_port is not None:
        port["nodePort"] = spec.node_port
    metadata = _metadata(service, service.metadata.name, names.ROLE_SERVING)
    if spec.annotations:
        metadata["annotations"] = dict(spec.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": spec.type.value,
            "selector": serving_selector(service.metadata.name),
            "ports": [port],
        },
    }


def peers_service(service: inference_service.InferenceService) -> Object:
    """Headless: its DNS name lists the ready replicas."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(service, names.peers_service(service.metadata.name), names.ROLE_SERVING),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": serving_selector(service.metadata.name),
            "ports": [
                {
                    "name": names.HTTP_PORT_NAME,
                    "port": names.HTTP_PORT,
                    "targetPort": names.HTTP_PORT_NAME,
                    "protocol": "TCP",
                },
                {
                    "name": names.OPS_PORT_NAME,
                    "port": names.OPS_PORT,
                    "targetPort": names.OPS_PORT_NAME,
                    "protocol": "TCP",
                },
            ],
        },
    }


def disruption_budget(service: inference_service.InferenceService) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(service, service.metadata.name, names.ROLE_SERVING),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": serving_selector(service.metadata.name)},
        },
    }


def resolver_job(service: inference_service.InferenceService, name: str, images: settings.Images) -> Object:
    """Reads the model's metadata once, without a GPU, before any pod is made."""
    model = service.spec.model
    arguments = ["resolve", model_path(service)]
    if model.revision:
        arguments.append(f"--sha256={model.revision.removeprefix('sha256:')}")
    arguments.append("--termination-log=/dev/termination-log")
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(
            service.spec.pod_template.fs_group, service.spec.pod_template.supplemental_groups
        ),
        "containers": [
            {
                "name": names.ROLE_RESOLVER,
                "image": runtime_image(service, images),
                "imagePullPolicy": images.pull_policy,
                "args": arguments,
                "env": [{"name": "HOME", "value": "/tmp"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "securityContext": _CONTAINER_SECURITY,
                "volumeMounts": [
                    {"name": _MODELS_VOLUME, "mountPath": names.MODELS_FOLDER, "readOnly": True},
                    {"name": _TMP_VOLUME, "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [_models_volume(service), {"name": _TMP_VOLUME, "emptyDir": {}}],
    }
    pull_secrets = dict.fromkeys(
        (*images.pull_secrets, *(each.name for each in service.spec.pod_template.image_pull_secrets))
    )
    if pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in pull_secrets]
    for key in ("nodeSelector", "tolerations", "priorityClassName", "schedulerName", "serviceAccountName"):
        value = _wire(service.spec.pod_template).get(key)
        if value:
            pod[key] = value
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(service, name, names.ROLE_RESOLVER),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": RESOLVER_DEADLINE_S,
            "template": {
                "metadata": {"labels": labels(service.metadata.name, names.ROLE_RESOLVER)},
                "spec": pod,
            },
        },
    }
