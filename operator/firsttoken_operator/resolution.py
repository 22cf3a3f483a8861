"""What is known about the model: from a recorded revision, or from the resolver Job. Pure.

A model is read once per (source, revision text, refresh token). The answer is pinned in the revision made of
it, so a Job or its pod that is cleaned up later changes nothing.
"""

from dataclasses import dataclass

from firsttoken_api import inference_service, names, quantity, resolved
from firsttoken_api.auto import AUTO
from firsttoken_api.reasons import Reason
from firsttoken_operator import objects, vllm
from firsttoken_operator.observed import Observed, Resolver

RETRY_S = 300.0
"""A failed Job is tried again after this time: somebody may have put the model there meanwhile."""
LEAST_CONTEXT_TOKENS = 256
"""What `maxModelLen: auto` needs at least; the engine chooses more where memory allows."""


@dataclass(frozen=True)
class Resolution:
    """What is to be served, or why that is not known."""

    model: resolved.ResolvedModel | None
    reason: Reason
    message: str
    source_hash: str
    job_name: str
    create_job: bool = False
    """The Job is to be created."""
    retry_job: Resolver | None = None
    """This Job is to be deleted, so that the next reconcile makes a new one."""
    again_after_s: float | None = None


def refresh_token(service: inference_service.InferenceService) -> str:
    return service.metadata.annotations.get(names.ANNOTATION_REFRESH, "")


def source_hash(service: inference_service.InferenceService) -> str:
    """Identifies what the resolver is asked for."""
    return objects.digest(_asked(service))


def _asked(service: inference_service.InferenceService) -> list[str]:
    model = service.spec.model
    # Our engine and vLLM read different sets of models: the answer for one says nothing about the other.
    return [model.source, model.revision, *(["vllm"] if vllm.is_engine(service) else [])]


def job_name(service: inference_service.InferenceService) -> str:
    asked = objects.digest([*_asked(service), refresh_token(service)])
    return names.resolver_job(service.metadata.name, asked)


def resolve(observed: Observed, now: float) -> Resolution:
    """The model, or the reason it is missing."""
    service = observed.service
    known = Resolution(None, Reason.RESOLVING, "", source_hash(service), job_name(service))
    pinned = _pinned(observed, known.source_hash)
    if pinned is not None:
        return _checked(service, known, pinned)
    job = next((each for each in observed.resolvers if each.name == known.job_name), None)
    if job is None:
        return _with(known, Reason.RESOLVING, _reading(known.job_name), create_job=True)
    if isinstance(job.answer, resolved.ResolvedModel):
        return _checked(service, known, job.answer)
    if job.finished_s is None:
        if job.cause is not None:
            return _with(known, job.cause.reason, job.cause.message)
        return _with(known, Reason.RESOLVING, _reading(job.name))
    return _failed(known, job, now)


def _reading(job: str) -> str:
    return f"the job {job} reads the model's metadata"


def _failed(known: Resolution, job: Resolver, now: float) -> Resolution:
    assert job.finished_s is not None
    wait_s = job.finished_s + RETRY_S - now
    retry = job if wait_s <= 0 else None
    again = wait_s if wait_s > 0 else None
    if isinstance(job.answer, resolved.ResolveFailure):
        is_known = job.answer.reason in set(Reason)
        reason = Reason(job.answer.reason) if is_known else Reason.RESOLVER_FAILED
        return _with(known, reason, job.answer.message, retry_job=retry, again_after_s=again)
    message = f"the job {job.name} ended without an answer: kubectl logs job/{job.name}"
    return _with(known, Reason.RESOLVER_FAILED, message, retry_job=retry, again_after_s=again)


def _with(
    known: Resolution,
    reason: Reason,
    message: str,
    create_job: bool = False,
    retry_job: Resolver | None = None,
    again_after_s: float | None = None,
) -> Resolution:
    return Resolution(
        None, reason, message, known.source_hash, known.job_name, create_job, retry_job, again_after_s
    )


def _pinned(observed: Observed, source: str) -> resolved.ResolvedModel | None:
    """What the newest recorded revision of the same source serves; a new refresh token reads again."""
    token = refresh_token(observed.service)
    for revision in sorted(observed.revisions, key=lambda each: -each.number):
        if revision.source_hash == source and token in ("", revision.refresh):
            return revision.model
    return None


def _checked(
    service: inference_service.InferenceService, known: Resolution, model: resolved.ResolvedModel
) -> Resolution:
    """Pre-flight: refuse before a pod is made what cannot fit."""
    if service.spec.gpus == 0:
        asked = service.spec.runtime.max_model_len
        if vllm.is_engine(service):
            # It takes the length it was trained for and does not start where one such sequence has no room.
            context = model.trained_length if asked == AUTO else int(asked)
            least = vllm.least_memory_bytes(service, model, context)
        else:
            context = min(model.trained_length, LEAST_CONTEXT_TOKENS) if asked == AUTO else int(asked)
            least = model.least_memory_bytes(context)
        if least > quantity.to_bytes(service.spec.resources.memory):
            message = (
                f"spec.resources.memory is {service.spec.resources.memory}; the model needs at least "
                f"{quantity.from_bytes(least)} for weights, {context} tokens of context and the runtime"
            )
            return _with(known, Reason.NOT_ENOUGH_MEMORY, message)
    message = f"{model.architecture}, {model.digest}"
    return Resolution(model, Reason.RESOLVED, message, known.source_hash, known.job_name)
