"""The engine container of a pod that serves with vLLM, and what its sidecar is told of it. Pure.

vLLM gets everything as start arguments, flags too (`firsttoken_api.vllm` has the table), so a change of a
flag is a new revision. Its image is the user's; what it needs beside ours is a writable home for its caches.
"""

import math

from firsttoken_api import inference_service, names, quantity, resolved, vllm
from firsttoken_api.auto import AUTO
from firsttoken_api.runtime_spec import Engine
from firsttoken_operator import flags, objects

CHUNK_TOKENS = 2048
"""Tokens of a step where the spec says `auto`. vLLM's own default differs from device to device; admission
has to know it."""
LEAST_KV_BYTES = 64 * 2**20
SHARED_MEMORY_SIZE = "1Gi"
"""Its processes talk through shared memory, of which a container has 64 MiB by default. What they use of it
counts as memory of the container."""
SHARED_MEMORY_VOLUME = f"{names.RESERVED_VOLUME_PREFIX}shared-memory"
_DRAIN = (
    "import socket\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    f"s.connect('{names.DRAIN_SOCKET}')\n"
    "s.sendall(b'drain\\n')\n"
    "while s.recv(256): pass\n"
)
"""vLLM's image has Python and nothing of ours. Without a sidecar it fails: there is nothing to be drained."""


def is_engine(service: inference_service.InferenceService) -> bool:
    return service.spec.runtime.engine is Engine.VLLM


def switches(
    service: inference_service.InferenceService, forced_off: frozenset[str] = frozenset()
) -> dict[str, bool]:
    """Flags as the pods are to be started, by name."""
    decisions = flags.decide(service.spec.optimizations, forced_off, service.spec.runtime.engine)
    return {each.name: each.enabled for each in decisions if each.name in vllm.HAS}


def sidecar_environment(
    service: inference_service.InferenceService, forced_off: frozenset[str]
) -> list[objects.Object]:
    """What the adapter has no other way to know."""
    enabled = switches(service, forced_off)
    sequences = service.spec.runtime.max_num_seqs
    return [
        {"name": "FIRSTTOKEN_ENGINE", "value": vllm.NAME},
        {"name": "FIRSTTOKEN_STARTED_FLAGS", "value": ",".join(sorted(n for n, on in enabled.items() if on))},
        {"name": "FIRSTTOKEN_MAX_NUM_SEQS", "value": "0" if sequences == AUTO else str(sequences)},
        {"name": "FIRSTTOKEN_CHUNK_TOKENS", "value": str(_batched_tokens(service, enabled) or 0)},
    ]


COMMAND = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
"""In every image of vLLM, also in those without the `vllm` command."""
PRE_STOP = ["python3", "-c", _DRAIN]


def arguments(
    service: inference_service.InferenceService,
    model_path: str,
    model: resolved.ResolvedModel,
    forced_off: frozenset[str],
) -> list[str]:
    runtime = service.spec.runtime
    enabled = switches(service, forced_off)
    found = [
        f"--model={model_path}",
        f"--served-model-name={service.served_name}",
        "--host=127.0.0.1",
        f"--port={names.ENGINE_HTTP_PORT}",
        f"--dtype={runtime.dtype.value}",
    ]
    if runtime.max_model_len != AUTO:
        found.append(f"--max-model-len={runtime.max_model_len}")
    if runtime.max_num_seqs != AUTO:
        found.append(f"--max-num-seqs={runtime.max_num_seqs}")
    if batched := _batched_tokens(service, enabled):
        found.append(f"--max-num-batched-tokens={batched}")
    if service.spec.gpus:
        found.append(f"--gpu-memory-utilization={runtime.memory_fraction}")
    else:
        found.append(f"--kv-cache-memory-bytes={_kv_bytes(service, model)}")
    return [
        *found,
        *vllm.arguments(
            enabled, flags.cold_parameters(service.spec.optimizations, Engine.VLLM), model.layers
        ),
        *runtime.extra_args,
    ]


def environment(service: inference_service.InferenceService, threads: int) -> dict[str, str]:
    """The user's own come on top."""
    found = {
        "HOME": "/tmp",
        # Some of its libraries ask for the user's name, which an image does not have for our user id.
        "USER": "firsttoken",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    if not service.spec.gpus:
        # As many threads as the pod asks CPUs for, on whichever cores it gets.
        found |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    return found


def mounts(service: inference_service.InferenceService) -> list[objects.Object]:
    """Of the engine's container; none where the engine is another."""
    return [{"name": SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"}] if is_engine(service) else []


def volumes(service: inference_service.InferenceService) -> list[objects.Object]:
    """What `mounts` mounts."""
    in_memory = {"medium": "Memory", "sizeLimit": SHARED_MEMORY_SIZE}
    return [{"name": SHARED_MEMORY_VOLUME, "emptyDir": in_memory}] if is_engine(service) else []


def _batched_tokens(service: inference_service.InferenceService, enabled: dict[str, bool]) -> int | None:
    """None: vLLM chooses, as it must where prompts are never split: a step then has room for the longest."""
    given = service.spec.runtime.max_num_batched_tokens
    if given != AUTO:
        return int(given)
    return CHUNK_TOKENS if enabled.get("chunked-prefill") else None


def least_memory_bytes(
    service: inference_service.InferenceService, model: resolved.ResolvedModel, context_tokens: int
) -> int:
    """On a CPU: so much of `resources.memory` that its share holds everything and one longest sequence."""
    needed = model.least_memory_bytes(context_tokens, resolved.VLLM_RUNTIME_BYTES)
    return math.ceil(needed / float(service.spec.runtime.memory_fraction))


def _kv_bytes(service: inference_service.InferenceService, model: resolved.ResolvedModel) -> int:
    """What the memory has left for KV. By itself vLLM would take a share of the node's, not of the pod's."""
    memory = quantity.to_bytes(service.spec.resources.memory)
    share = float(service.spec.runtime.memory_fraction)
    left = math.floor(memory * share) - model.weight_bytes_16bit - resolved.VLLM_RUNTIME_BYTES
    return max(left, LEAST_KV_BYTES)
