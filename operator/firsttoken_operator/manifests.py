"""The children of a service around its pods, as plain JSON, rendered at each reconcile. Pure.

`pods` makes the template of a Deployment, `resolver_job` the Job, `objects` what all have in common.
"""

import math

from firsttoken_api import duration, hot_settings, inference_service, names
from firsttoken_operator import objects


def deployment(
    service: inference_service.InferenceService, revision: str, template: objects.Object, replicas: int
) -> objects.Object:
    """One revision's pods. The template never changes, so the strategy only matters after a hand edit."""
    name = service.metadata.name
    metadata = objects.metadata(service, names.revision_name(name, revision), names.ROLE_SERVING, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": objects.serving_selector(name) | {names.LABEL_REVISION: revision}},
            "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": max(
                1, math.ceil(duration.to_seconds(service.spec.rollout.progress_deadline))
            ),
            "revisionHistoryLimit": 1,
        },
    }


def controller_revision(
    service: inference_service.InferenceService, revision: str, number: int, data: objects.Object
) -> objects.Object:
    """The immutable record of a revision: what was asked for, and the template made of it."""
    name = names.revision_name(service.metadata.name, revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": objects.metadata(service, name, names.ROLE_SERVING, revision),
        "revision": number,
        "data": data,
    }


def flags_config_map(
    service: inference_service.InferenceService, revision: str, document: hot_settings.HotSettings
) -> objects.Object:
    name = service.metadata.name
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": objects.metadata(
            service, names.flags_config_map(name, revision), names.ROLE_SERVING, revision
        ),
        "data": {names.FLAGS_KEY: document.to_json()},
    }


def traffic_service(service: inference_service.InferenceService) -> objects.Object:
    """What clients talk to."""
    spec = service.spec.service
    port: objects.Object = {
        "name": names.HTTP_PORT_NAME,
        "port": spec.port,
        "targetPort": names.HTTP_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    if spec.node_port is not None:
        port["nodePort"] = spec.node_port
    metadata = objects.metadata(service, service.metadata.name, names.ROLE_SERVING)
    if spec.annotations:
        metadata["annotations"] = dict(spec.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": spec.type.value,
            "selector": objects.serving_selector(service.metadata.name),
            "ports": [port],
        },
    }


def peers_service(service: inference_service.InferenceService) -> objects.Object:
    """Headless: its DNS name lists the ready replicas."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": objects.metadata(service, names.peers_service(service.metadata.name), names.ROLE_SERVING),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": objects.serving_selector(service.metadata.name),
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


def disruption_budget(service: inference_service.InferenceService) -> objects.Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": objects.metadata(service, service.metadata.name, names.ROLE_SERVING),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": objects.serving_selector(service.metadata.name)},
        },
    }
