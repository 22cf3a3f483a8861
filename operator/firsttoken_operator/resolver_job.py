"""The Job that reads what a model is, before any pod that would load it. Pure.

What it answers is judged in `resolution`.
"""

from firsttoken_api import inference_service, names
from firsttoken_operator import containers, objects, pods, settings, vllm

DEADLINE_S = 3_600


def render(service: inference_service.InferenceService, name: str, images: settings.Images) -> objects.Object:
    """Reads the model's metadata once, without a GPU, before any pod is made."""
    model = service.spec.model
    arguments = ["resolve", containers.model_path(service)]
    if model.revision:
        arguments.append(f"--sha256={model.revision.removeprefix('sha256:')}")
    if vllm.is_engine(service):
        arguments.append("--any-architecture")
    arguments.append("--termination-log=/dev/termination-log")
    pod: objects.Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pods.security(
            service.spec.pod_template.fs_group, service.spec.pod_template.supplemental_groups
        ),
        "containers": [
            {
                "name": names.ROLE_RESOLVER,
                # vLLM's image has no resolver.
                "image": images.runtime
                if vllm.is_engine(service)
                else containers.runtime_image(service, images),
                "imagePullPolicy": images.pull_policy,
                "args": arguments,
                "env": [{"name": "HOME", "value": "/tmp"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "securityContext": containers.SECURITY,
                "volumeMounts": [
                    {"name": containers.MODELS_VOLUME, "mountPath": names.MODELS_FOLDER, "readOnly": True},
                    {"name": containers.TMP_VOLUME, "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [pods.models_volume(service), {"name": containers.TMP_VOLUME, "emptyDir": {}}],
    }
    pull_secrets = dict.fromkeys(
        (*images.pull_secrets, *(each.name for each in service.spec.pod_template.image_pull_secrets))
    )
    if pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in pull_secrets]
    for key in ("nodeSelector", "tolerations", "priorityClassName", "schedulerName", "serviceAccountName"):
        value = objects.wire(service.spec.pod_template).get(key)
        if value:
            pod[key] = value
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": objects.metadata(service, name, names.ROLE_RESOLVER),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_S,
            "template": {
                "metadata": {"labels": objects.labels(service.metadata.name, names.ROLE_RESOLVER)},
                "spec": pod,
            },
        },
    }
