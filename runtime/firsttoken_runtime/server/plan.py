"""From a prepared request to what is submitted for it: a sequence and a choice for each of its answers."""

from dataclasses import dataclass

import msgspec

from firsttoken_runtime import core
from firsttoken_runtime.server import message, sampling, shared_prefix, structured
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.choice import Choice, Shaper, TextShaper, WriteLogprobs
from firsttoken_runtime.server.classes import Resolved
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.logprobs import LogprobWriter
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.sequence import Wanted
from firsttoken_runtime.server.service import Service

# Tokens before a text that goes on which the detokenizer looks at, so that its first word keeps its space.
CONTEXT_TOKENS = 4

Body = ChatRequest | CompletionRequest


@dataclass(frozen=True)
class Prepared:
    """What the slow part of a request leaves behind."""

    prompts: list[Prompt]
    constraint: structured.Constraint
    calls: structured.ToolFormat | None = None


def plan(
    service: Service, body: Body, resolved: Resolved, prepared: Prepared, cache_salt: str = ""
) -> tuple[list[Wanted], list[Choice]]:
    """A sequence and a choice for every prompt and each of its n answers. Raises BadRequestError."""
    assert service.client.ready is not None
    vocabulary_size, capacity = service.client.ready.vocabulary_size, service.client.token_capacity
    wanted: list[Wanted] = []
    choices: list[Choice] = []
    for one in prepared.prompts:
        sampling.check_prompt(one, vocabulary_size, capacity, least_answer=int(body.token_limit != 0))
        params = sampling.parameters(
            body,
            service.text_model.sampling,
            prompt_tokens=len(one.ids),
            vocabulary_size=vocabulary_size,
            capacity=capacity,
            default_max_tokens=resolved.max_tokens,
            grammar=prepared.constraint.grammar,
        )
        shared_tokens = shared_prefix.of_request(
            body.shared_prefix_tokens, one.ids, one.system_tokens, service.pins.prompts
        )
        # The first answer's prompt is computed, the others wait for it and find it.
        is_computed_once = service.shares_prompts and params.prompt_logprobs is None
        for choice in range(body.n):
            wanted.append(
                Wanted(
                    one.ids,
                    msgspec.structs.replace(params, choice=choice),
                    request_class=resolved.request_class,
                    priority=body.priority,
                    expected_output_tokens=body.asked_token_limit,
                    cache_salt=cache_salt,
                    shared_prefix_tokens=shared_tokens,
                    expected_uncached_tokens=0 if choice and is_computed_once else None,
                )
            )
            choices.append(_choice(service, body, one, params, prepared, len(choices)))
    return wanted, choices


def _choice(
    service: Service,
    body: Body,
    one: Prompt,
    params: core.SamplingParams,
    prepared: Prepared,
    index: int,
) -> Choice:
    text_model, calls = service.text_model, prepared.calls
    continues = isinstance(body, CompletionRequest) or body.continue_final_message
    echoes = isinstance(body, CompletionRequest) and body.echo
    top = body.top_logprobs_wanted
    answer = Answer(
        Detokenizer(
            text_model.tokenizer,
            tuple(one.ids[-CONTEXT_TOKENS:]) if continues else (),
            # Else calls of tools that begin with a special token would not be seen.
            show_special=not body.skip_special_tokens or (calls is not None and bool(calls.special_ids)),
        ),
        stops=body.stops,
        include_stop=body.include_stop_str_in_output,
        min_tokens=body.min_tokens,
        stop_token_ids=params.stop_token_ids,
        keeps_logprobs=top is not None,
        echoed_chars=len(one.text) if echoes else 0,
    )
    shaper: Shaper = TextShaper("text")
    if isinstance(body, ChatRequest):
        shaper = message.shaper(
            body,
            text_model,
            calls,
            starts_inside_reasoning=one.opens_reasoning,
            is_whole_grammar=prepared.constraint.is_whole,
        )
    write: WriteLogprobs | None = None
    if top is not None:
        writer = LogprobWriter(text_model.token_text, top, as_ids=body.return_tokens_as_token_ids)
        write = writer.chat if isinstance(body, ChatRequest) else writer.completion
    return Choice(index, one, answer, shaper, write_logprobs=write, echoes=echoes)
