"""The containers of a model pod, the engine and its sidecar: arguments, probes, resources and mounts. Pure.

The volumes that they mount are made in `pods`.
"""

import math

from firsttoken_api import inference_service, names, quantity, resolved
from firsttoken_api.runtime_spec import PrefillPriority
from firsttoken_operator import flags, kv_cache, objects, routing, settings, vllm

ENGINE_PATIENCE_S = 120
"""How long the engine's server may take to bind its port; loading afterwards is judged by progress."""
LIVENESS_FAILURES = 6
LIVENESS_TIMEOUT_S = 10
"""Slow is not dead: on a node short of processor time a restart loses every stream and makes the shortage
worse. An engine that died says so at once and is restarted after 30 s; one that is only late has a minute.
"""

FLAGS_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}flags"
INFO_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}pod"
RUN_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}run"
MODELS_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}models"
TMP_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}tmp"
SIDECAR_TMP_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}sidecar-tmp"

TRACING_VARIABLES = frozenset({"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"})

SECURITY: objects.Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def model_path(service: inference_service.InferenceService) -> str:
    """Where the engine and the resolver see the model."""
    return f"{names.MODELS_FOLDER}/{service.spec.model.path}"


def runtime_image(service: inference_service.InferenceService, images: settings.Images) -> str:
    return service.spec.runtime.image or images.runtime


def _probe(path: str, period_s: int, failures: int, timeout_s: int = 3) -> objects.Object:
    return {
        "httpGet": {"path": path, "port": names.OPS_PORT, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _tracing(service: inference_service.InferenceService) -> list[objects.Object]:
    """The engine's collector is the sidecar's too: it makes the trace of a request that comes with none."""
    return [
        {"name": each.name, "value": each.value}
        for each in service.spec.runtime.env
        if each.name in TRACING_VARIABLES
    ]


def sidecar(
    service: inference_service.InferenceService,
    images: settings.Images,
    drain_s: float,
    deregister_s: float,
    forced_off: frozenset[str] = frozenset(),
) -> objects.Object:
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
            *routing.env(service),
            *_tracing(service),
            *(vllm.sidecar_environment(service, forced_off) if vllm.is_engine(service) else ()),
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
        "securityContext": SECURITY,
        "volumeMounts": [
            {"name": FLAGS_VOLUME, "mountPath": names.FLAGS_FOLDER, "readOnly": True},
            {"name": INFO_VOLUME, "mountPath": names.POD_INFO_FOLDER, "readOnly": True},
            {"name": RUN_VOLUME, "mountPath": names.RUN_FOLDER},
            {"name": SIDECAR_TMP_VOLUME, "mountPath": "/tmp"},
            *routing.mounts(service),
        ],
    }


def engine_threads(cpu: str) -> int:
    """Compute threads for a CPU request: whole CPUs, rounded up.

    Engines that share a node must not each take all of its cores: a step ends with its slowest thread,
    and one that waits for a core stalls the others at every barrier.
    """
    return max(1, math.ceil(quantity.to_millicores(cpu) / 1000))


COLD_OPTIONS = {
    ("paged-kv", "blockSize"): "--block-size={}",
    ("paged-kv", "maxBlocks"): "--kv-blocks={}",
    ("kv-tiering", "hostMemory"): "--host-memory={}",
    ("kv-tiering", "claimName"): f"--host-folder={names.HOST_FOLDER}",
}
"""Options of `firsttoken serve` that carry cold parameters of flags; `{}` stands for the value."""


def _not_by_default(service: inference_service.InferenceService) -> list[str]:
    """Options that are only given where the spec asks for them: an engine image of an earlier version, which
    a user may have named, does not know them."""
    options = []
    if service.spec.runtime.prefill_priority is not PrefillPriority.NORMAL:
        options.append(f"--prefill-priority={service.spec.runtime.prefill_priority.value}")
    if service.spec.cache_pins:
        options.append(f"--cache-pins={names.CACHE_PINS_FOLDER}/{names.CACHE_PINS_KEY}")
    for flag, parameters in flags.cold_parameters(service.spec.optimizations).items():
        options += [COLD_OPTIONS[flag, name].format(value) for name, value in sorted(parameters.items())]
    return options


def engine(
    service: inference_service.InferenceService,
    images: settings.Images,
    model: resolved.ResolvedModel,
    forced_off: frozenset[str] = frozenset(),
) -> objects.Object:
    if vllm.is_engine(service):
        return _container(
            service,
            images,
            start={
                "command": vllm.COMMAND,
                "args": vllm.arguments(service, model_path(service), model, forced_off),
            },
            environment=vllm.environment(service, engine_threads(service.spec.resources.cpu)),
            pre_stop=vllm.PRE_STOP,
        )
    return _container(
        service,
        images,
        start={"args": _serve(service)},
        environment={"HOME": "/tmp"},
        pre_stop=["python", "-m", "firsttoken_runtime.drain"],
    )


def _serve(service: inference_service.InferenceService) -> list[str]:
    """Arguments of `firsttoken`."""
    spec = service.spec
    runtime = spec.runtime
    return [
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
        *_not_by_default(service),
        f"--flags-file={names.FLAGS_FOLDER}/{names.FLAGS_KEY}",
        "--log-format=json",
        *runtime.extra_args,
    ]


def _container(
    service: inference_service.InferenceService,
    images: settings.Images,
    *,
    start: objects.Object,
    environment: dict[str, str],
    pre_stop: list[str],
) -> objects.Object:
    """An engine's container, whichever it is: the user's own variables win over `environment`."""
    spec = service.spec
    runtime = spec.runtime
    return {
        "name": names.ENGINE_CONTAINER,
        "image": runtime_image(service, images),
        "imagePullPolicy": images.pull_policy,
        **start,
        # Keyed by name: a create lets a variable that is named twice through, every later apply is refused.
        "env": [
            {"name": name, "value": value}
            for name, value in (environment | {each.name: each.value for each in runtime.env}).items()
        ],
        "startupProbe": _probe("/engine/startupz", 2, ENGINE_PATIENCE_S // 2),
        "livenessProbe": _probe("/engine/livez", 5, LIVENESS_FAILURES, LIVENESS_TIMEOUT_S),
        "lifecycle": {"preStop": {"exec": {"command": pre_stop}}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": _resources(service),
        "securityContext": SECURITY,
        "volumeMounts": [
            {"name": FLAGS_VOLUME, "mountPath": names.FLAGS_FOLDER, "readOnly": True},
            {"name": MODELS_VOLUME, "mountPath": names.MODELS_FOLDER, "readOnly": True},
            {"name": RUN_VOLUME, "mountPath": names.RUN_FOLDER},
            {"name": TMP_VOLUME, "mountPath": "/tmp"},
            *kv_cache.mounts(service),
            *vllm.mounts(service),
            *(objects.wire(mount) for mount in spec.pod_template.volume_mounts),
        ],
    }


def _resources(service: inference_service.InferenceService) -> objects.Object:
    resources = service.spec.resources
    limits: objects.Object = {"memory": kv_cache.memory(service)}
    if service.spec.gpus:
        limits[resources.gpu_resource] = str(service.spec.gpus)
    return {"requests": {"cpu": resources.cpu, **limits}, "limits": limits}
