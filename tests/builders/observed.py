"""Facts for the operator's pure modules, with sensible values for everything a test does not care about."""

from typing import Any

from firsttoken_api import inference_service, resolved
from firsttoken_api.inference_service import InferenceService
from firsttoken_api.reasons import Reason
from firsttoken_api.state import EngineState, FlagsState, Phase, SidecarState, TtftWindow
from firsttoken_operator import resolution, revisions, settings
from firsttoken_operator.observed import (
    Bump,
    Cause,
    Deployment,
    FlagsDocument,
    FlagsMark,
    Observed,
    Pod,
    Resolver,
    Revision,
)

NOW = 1_800_000_000.0
IMAGES = settings.Images(runtime="example/runtime:1", sidecar="example/sidecar:1")
OTHER_IMAGES = settings.Images(runtime="example/runtime:2", sidecar="example/sidecar:2")


def service(annotations: dict[str, str] | None = None, name: str = "chat", **spec: Any) -> InferenceService:
    """A Fixed service on the CPU; keywords (in the API's spelling) replace parts of the spec."""
    return inference_service.parse(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": "uid-service",
                "generation": 3,
                "annotations": annotations or {},
            },
            "spec": {
                "model": {"source": "pvc://models/smollm2.gguf"},
                "runtime": {"device": "cpu"},
                "resources": {"cpu": "1", "memory": "2Gi"},
                "scaling": {"mode": "Fixed", "replicas": 1},
                **spec,
            },
        }
    )


def model(**fields: Any) -> resolved.ResolvedModel:
    """SmolLM2-135M."""
    return resolved.ResolvedModel(
        **{
            "digest": "sha256:" + "a" * 64,
            "bytes": 98_362_432,
            "format": "gguf",
            "architecture": "LlamaForCausalLM",
            "parameters": 134_515_008,
            "layers": 30,
            "heads": 9,
            "kv_heads": 3,
            "head_dim": 64,
            "hidden": 576,
            "vocabulary": 49_152,
            "trained_length": 8_192,
            "weight_bytes_16bit": 269_030_016,
            **fields,
        }
    )


def resolver(
    of: InferenceService,
    answer: resolved.ResolvedModel | resolved.ResolveFailure | None = None,
    finished_s: float | None = None,
    cause: Cause | None = None,
) -> Resolver:
    return Resolver(resolution.job_name(of), "uid-job", answer, finished_s, cause)


def rendering(
    of: InferenceService,
    images: settings.Images = IMAGES,
    found: resolved.ResolvedModel | None = None,
) -> revisions.Rendering:
    """What this operator would make of the service."""
    known = resolution.Resolution(found or model(), Reason.RESOLVED, "", resolution.source_hash(of), "")
    return revisions.render(of, known, images)


def revision(
    of: InferenceService,
    number: int = 1,
    images: settings.Images = IMAGES,
    found: resolved.ResolvedModel | None = None,
) -> Revision:
    """A recorded revision, as an operator with these images made it."""
    made = rendering(of, images, found)
    return Revision(
        name=made.name,
        object_name=f"{of.metadata.name}-{made.name}",
        uid=f"uid-{made.name}",
        number=number,
        created_s=NOW - 1_000,
        intent_hash=made.intent_hash,
        render_hash=made.render_hash,
        refresh=made.refresh,
        source_hash=made.source_hash,
        image=made.image,
        model=made.model,
        template=made.template,
    )


def deployment(of: Revision, replicas: int, failure: Cause | None = None, since_s: float = 0.0) -> Deployment:
    return Deployment(
        of.object_name, f"uid-deployment-{of.name}", of.name, replicas, failure, failure_since_s=since_s
    )


def sidecar_state(
    generation: int = 1,
    hash: str = "",
    error: str = "",
    enabled: tuple[str, ...] = (),
    phase: Phase = Phase.READY,
    ttft: TtftWindow | None = None,
    arrivals: int = 0,
    in_flight: int = 0,
    auth_error: str = "",
) -> SidecarState:
    flags = FlagsState(generation=generation, hash=hash, error=error, enabled=enabled)
    return SidecarState(
        ready=phase is Phase.READY,
        flags=flags,
        ttft=ttft,
        arrivals_total=arrivals,
        in_flight=in_flight,
        auth_error=auth_error,
        engine=EngineState(phase=phase, flags=flags, max_model_len=2_048),
    )


def pod(
    name: str = "chat-1",
    revision: str = "r1",
    ready: bool = True,
    state: SidecarState | None = None,
    mark: FlagsMark | None = None,
    bump: Bump | None = None,
    cause: Cause | None = None,
    changed_s: float = NOW - 60,
    deleting: bool = False,
    failed_scrapes: int = 0,
) -> Pod:
    return Pod(
        name=name,
        uid=f"uid-{name}",
        revision=revision,
        created_s=NOW - 600,
        deleting=deleting,
        ready=ready,
        changed_s=changed_s,
        mark=mark,
        bump=bump,
        cause=cause,
        state=state,
        failed_scrapes=failed_scrapes,
    )


def document(of: Revision, generation: int, content_hash: str) -> FlagsDocument:
    return FlagsDocument(f"{of.object_name}-flags", f"uid-flags-{of.name}", of.name, generation, content_hash)


def observed(of: InferenceService, **fields: Any) -> Observed:
    return Observed(**{"service": of, "previous": of.status, **fields})
