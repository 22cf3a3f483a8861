"""From a checked request to the engine's sampling parameters: what depends on the model and on the prompt."""

import secrets

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server.openai_models import GenerationRequest
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.tokenizer import SamplingDefaults

SEED_MASK = 2**63 - 1
# Below GREEDY a temperature only divides by almost zero; up to COLDEST it overflows in 16 bit.
GREEDY = 1e-5
COLDEST = 1e-2


def check_prompt(prompt: Prompt, vocabulary_size: int, capacity: int, *, least_answer: int = 1) -> None:
    """Raises BadRequestError for an empty prompt, unknown tokens, or no room for an answer."""
    ids, param = prompt.ids, prompt.param
    if not ids:
        raise errors.BadRequestError(f"{param} is empty: it has no tokens", param=param)
    largest = max(ids)
    if largest >= vocabulary_size:
        raise errors.BadRequestError(
            f"{param} has the token id {largest}; the vocabulary ends at {vocabulary_size - 1}", param=param
        )
    if len(ids) + least_answer > capacity:
        answer = "with at least one token of answer, " if least_answer else ""
        raise errors.BadRequestError(
            f"the prompt has {len(ids)} tokens; {answer}this server's context holds {capacity}",
            param=param,
            code="context_length_exceeded",
        )


def parameters(
    request: GenerationRequest,
    defaults: SamplingDefaults,
    *,
    prompt_tokens: int,
    vocabulary_size: int,
    capacity: int,
    default_max_tokens: int | None = None,
    grammar: str = "",
) -> core.SamplingParams:
    """Of the first choice. `capacity` is the most tokens that prompt and answer may have; the default of
    `max_tokens` belongs to the request's class or route. Raises BadRequestError."""
    room = capacity - prompt_tokens
    limit = request.token_limit
    if request.asked_token_limit is None and default_max_tokens is not None:
        limit = min(default_max_tokens, room)
    if limit is not None and limit > room:
        raise errors.BadRequestError(
            f"max_tokens is {limit}, but a prompt of {prompt_tokens} tokens leaves {room} "
            f"of this server's context of {capacity}",
            param="max_tokens",
            code="context_length_exceeded",
        )
    most = room if limit is None else limit
    if request.min_tokens > most:
        raise errors.BadRequestError(
            f"min_tokens is {request.min_tokens}, but the answer may have {most}", param="min_tokens"
        )
    top_k = defaults.top_k if request.top_k is None else max(request.top_k, 0)
    if top_k > vocabulary_size:
        raise errors.BadRequestError(
            f"top_k is {top_k}; the vocabulary has {vocabulary_size} tokens", param="top_k"
        )
    for name, ids in (("stop_token_ids", request.stop_token_ids), ("logit_bias", request.logit_bias)):
        if (largest := max(ids, default=0)) >= vocabulary_size:
            raise errors.BadRequestError(
                f"{name} has {largest}; the vocabulary ends at {vocabulary_size - 1}", param=name
            )
    repetition = request.repetition_penalty
    return core.SamplingParams(
        max_tokens=most,
        temperature=_temperature(
            defaults.temperature if request.temperature is None else request.temperature
        ),
        top_k=top_k,
        top_p=defaults.top_p if request.top_p is None else request.top_p,
        min_p=defaults.min_p if request.min_p is None else request.min_p,
        seed=secrets.randbits(63) if request.seed is None else request.seed & SEED_MASK,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=defaults.repetition_penalty if repetition is None else repetition,
        logit_bias=request.logit_bias,
        logprobs=request.top_logprobs_wanted,
        prompt_logprobs=request.prompt_logprobs_wanted,
        grammar=grammar,
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        min_tokens=request.min_tokens,
    )


def _temperature(asked: float) -> float:
    if asked < GREEDY:
        return 0.0
    return max(asked, COLDEST)
