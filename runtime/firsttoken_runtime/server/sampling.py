"""From a checked request to the engine's sampling parameters: what depends on the model and on the prompt."""

import secrets

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.tokenizer import SamplingDefaults

SEED_MASK = 2**63 - 1
# Below GREEDY a temperature only divides by almost zero; up to COLDEST it overflows in 16 bit.
GREEDY = 1e-5
COLDEST = 1e-2


def check_prompt(prompt_token_ids: list[int], vocabulary_size: int, capacity: int, param: str) -> None:
    """Raises BadRequestError for an empty prompt, unknown tokens, or no room for an answer."""
    if not prompt_token_ids:
        raise errors.BadRequestError(f"{param} is empty: it has no tokens", param=param)
    largest = max(prompt_token_ids)
    if largest >= vocabulary_size:
        raise errors.BadRequestError(
            f"{param} has the token id {largest}; the vocabulary ends at {vocabulary_size - 1}", param=param
        )
    if len(prompt_token_ids) >= capacity:
        raise errors.BadRequestError(
            f"the prompt has {len(prompt_token_ids)} tokens; with at least one token of answer, "
            f"this server's context holds {capacity}",
            param=param,
            code="context_length_exceeded",
        )


def parameters(
    request: ChatRequest | CompletionRequest,
    defaults: SamplingDefaults,
    *,
    prompt_tokens: int,
    vocabulary_size: int,
    capacity: int,
) -> core.SamplingParams:
    """`capacity` is the most tokens that prompt and answer may have. Raises BadRequestError."""
    room = capacity - prompt_tokens
    limit = request.token_limit
    if limit is not None and limit > room:
        raise errors.BadRequestError(
            f"max_tokens is {limit}, but a prompt of {prompt_tokens} tokens leaves {room} "
            f"of this server's context of {capacity}",
            param="max_tokens",
            code="context_length_exceeded",
        )
    if request.min_tokens > room:
        raise errors.BadRequestError(
            f"min_tokens is {request.min_tokens}, but the context leaves {room}", param="min_tokens"
        )
    top_k = defaults.top_k if request.top_k is None else max(request.top_k, 0)
    if top_k > vocabulary_size:
        raise errors.BadRequestError(
            f"top_k is {top_k}; the vocabulary has {vocabulary_size} tokens", param="top_k"
        )
    for token_id in request.stop_token_ids:
        if token_id >= vocabulary_size:
            raise errors.BadRequestError(
                f"stop_token_ids has {token_id}; the vocabulary ends at {vocabulary_size - 1}",
                param="stop_token_ids",
            )
    return core.SamplingParams(
        max_tokens=room if limit is None else limit,
        temperature=_temperature(
            defaults.temperature if request.temperature is None else request.temperature
        ),
        top_k=top_k,
        top_p=defaults.top_p if request.top_p is None else request.top_p,
        min_p=defaults.min_p if request.min_p is None else request.min_p,
        seed=secrets.randbits(63) if request.seed is None else request.seed & SEED_MASK,
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        min_tokens=request.min_tokens,
    )


def _temperature(asked: float) -> float:
    if asked < GREEDY:
        return 0.0
    return max(asked, COLDEST)
