"""The model pod of a revision: security, volumes, and what the user adds. Pure.

It is rendered once per revision and then kept (see `revisions`); its containers are in `containers`.
"""

import math

from firsttoken_api import duration, inference_service, names, resolved
from firsttoken_api.base import SpecModel
from firsttoken_operator import containers, kv_cache, objects, routing, settings, vllm

USER_ID = 10_001
GRACE_MARGIN_S = 15


def template(
    service: inference_service.InferenceService,
    images: settings.Images,
    revision: str,
    model: resolved.ResolvedModel,
    forced_off: frozenset[str] = frozenset(),
) -> objects.Object:
    """The model pod: native sidecar and engine, restricted Pod Security, no service-account token.

    forced_off: flags that the fleet has switched off. Only an engine that gets them as start arguments is
    rendered with it.
    """
    spec = service.spec
    extra = spec.pod_template
    drain_s = duration.to_seconds(spec.drain.timeout)
    deregister_s = duration.to_seconds(spec.drain.deregister_delay)
    pull_secrets = dict.fromkeys((*images.pull_secrets, *(each.name for each in extra.image_pull_secrets)))
    pod: objects.Object = {
        "terminationGracePeriodSeconds": math.ceil(drain_s + deregister_s) + GRACE_MARGIN_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security(extra.fs_group, extra.supplemental_groups),
        "initContainers": [containers.sidecar(service, images, drain_s, deregister_s, forced_off)],
        "containers": [containers.engine(service, images, model, forced_off)],
        "volumes": [
            {
                "name": containers.FLAGS_VOLUME,
                "configMap": {"name": names.flags_config_map(service.metadata.name, revision)},
            },
            {
                "name": containers.INFO_VOLUME,
                "downwardAPI": {
                    "items": [
                        {
                            "path": names.POD_ANNOTATIONS_FILE,
                            "fieldRef": {"fieldPath": "metadata.annotations"},
                        },
                        *routing.pod_info(service),
                    ]
                },
            },
            {"name": containers.RUN_VOLUME, "emptyDir": {}},
            {"name": containers.TMP_VOLUME, "emptyDir": {}},
            {"name": containers.SIDECAR_TMP_VOLUME, "emptyDir": {}},
            models_volume(service),
            *kv_cache.volumes(service),
            *vllm.volumes(service),
            *routing.volumes(service),
            *(objects.wire(volume) | _empty_kinds(volume) for volume in extra.volumes),
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
        value = objects.wire(extra).get(key)
        if value:
            pod[key] = value
    if extra.topology_spread_constraints:
        pod["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": objects.serving_selector(service.metadata.name)}}
            | objects.wire(each)
            for each in extra.topology_spread_constraints
        ]
    metadata: objects.Object = {
        "labels": dict(extra.labels) | objects.labels(service.metadata.name, names.ROLE_SERVING, revision)
    }
    if extra.annotations:
        metadata["annotations"] = dict(extra.annotations)
    return {"metadata": metadata, "spec": pod}


def _empty_kinds(volume: SpecModel) -> objects.Object:
    # `emptyDir: {}` means something although every field of it has its default.
    return {
        key: {}
        for key, value in volume.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        if isinstance(value, dict) and key not in objects.wire(volume)
    }


def security(fs_group: int | None = None, groups: tuple[int, ...] = ()) -> objects.Object:
    context: objects.Object = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": fs_group or USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if groups:
        context["supplementalGroups"] = list(groups)
    return context


def models_volume(service: inference_service.InferenceService) -> objects.Object:
    claim = {"claimName": service.spec.model.claim_name, "readOnly": True}
    return {"name": containers.MODELS_VOLUME, "persistentVolumeClaim": claim}
