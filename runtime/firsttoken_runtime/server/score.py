"""/v1/score: how likely the model finds given texts. Nothing is generated.

The answer has, per prompt, the natural logarithm of each token's probability after those before it; the
first token has none. `sum` and `count` are over the others, so perplexity is exp(-sum / count).
"""

import time
import uuid

import msgspec
from aiohttp import web

from firsttoken_runtime import core
from firsttoken_runtime.server import http, prompt, request, sampling, shared_prefix, tenant, wire
from firsttoken_runtime.server.logprobs import finite
from firsttoken_runtime.server.openai_models import ScoreRequest
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.sequence import Group, Wanted
from firsttoken_runtime.server.service import Service
from firsttoken_runtime.server.token_text import TokenText


async def score(service: Service, incoming: web.Request) -> web.StreamResponse:
    timer = service.timer("score", incoming.headers)
    body = await service.parse(ScoreRequest, await http.read_body(incoming))
    resolved = service.resolve(incoming.headers, body.model)
    salt = tenant.salt(service.tenants.of(incoming), body.cache_salt)
    service.check_ready()
    with service.room():
        prompts = await service.in_thread(lambda: _encode(service, body))
        service.check_ready()
        assert service.client.ready is not None
        vocabulary_size, capacity = service.client.ready.vocabulary_size, service.client.token_capacity
        for one in prompts:
            sampling.check_prompt(one, vocabulary_size, capacity, least_answer=0)
        params = core.SamplingParams(max_tokens=0, temperature=0.0, prompt_logprobs=body.top)
        wanted = [
            Wanted(
                one.ids,
                params,
                request_class=resolved.request_class,
                priority=body.priority,
                expected_output_tokens=0,
                cache_salt=salt,
                shared_prefix_tokens=shared_prefix.of_request(
                    body.shared_prefix_tokens, one.ids, one.system_tokens, service.pins.prompts
                ),
            )
            for one in prompts
        ]
        prompt_tokens = sum(len(one.ids) for one in prompts)
        scores: list[list[core.TokenLogprobs | None]] = []
        async with request.submitted(
            service,
            wanted,
            prompt_tokens,
            resolved,
            timer,
            lambda: ("length" if len(scores) == len(prompts) else None, 0),
        ) as group:
            scores += await _all_scores(group)
    reply = await service.in_thread(lambda: _reply(service, prompts, scores, body.top, prompt_tokens))
    return http.json_response(reply)


def _encode(service: Service, body: ScoreRequest) -> list[Prompt]:
    return [
        prompt.encode(
            one,
            service.text_model,
            service.client.token_capacity,
            param="prompt" if body.prompts is None else f"prompts[{index}]",
            add_special_tokens=body.add_special_tokens,
        )
        for index, one in enumerate(body.all_prompts)
    ]


async def _all_scores(group: Group) -> list[list[core.TokenLogprobs | None]]:
    """Raises ApiError if one has failed."""
    while not all(sequence.has_finished for sequence in group.sequences):
        await group.wait()
        for sequence in group.sequences:
            sequence.take()
    found = []
    for sequence in group.sequences:
        sequence.take()
        assert sequence.prompt_scores is not None, "it ended without them"
        found.append(sequence.prompt_scores)
    return found


def _reply(
    service: Service,
    prompts: list[Prompt],
    scores: list[list[core.TokenLogprobs | None]],
    top: int,
    prompt_tokens: int,
) -> dict[str, object]:
    """A `wire.ScoreList`. Slow where many tokens have alternatives, so it is made in a thread."""
    token_text = service.text_model.token_text
    return {
        "id": f"score-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": service.served_name,
        "data": [
            # Each encoded as it is made: all of them as objects would be many times the memory of the text.
            msgspec.Raw(msgspec.json.encode(_one(index, one.ids, own, top, token_text)))
            for index, (one, own) in enumerate(zip(prompts, scores, strict=True))
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 0,
            "total_tokens": prompt_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _one(
    index: int,
    token_ids: list[int],
    scores: list[core.TokenLogprobs | None],
    top: int,
    token_text: TokenText,
) -> wire.Score:
    known = [one for one in scores if one is not None]
    written: wire.Score = {
        "index": index,
        "object": "score",
        "token_ids": token_ids,
        "tokens": [token_text.to_text(token_id) for token_id in token_ids],
        "logprobs": [None if one is None else finite(one.logprob) for one in scores],
        "ranks": [None if one is None else one.rank for one in scores],
        "sum": sum(finite(one.logprob) for one in known),
        "count": len(known),
    }
    if top:
        written["top_logprobs"] = [
            None
            if one is None
            else [
                {"token_id": other, "token": token_text.to_text(other), "logprob": finite(logprob)}
                for other, logprob in zip(one.top_ids[:top], one.top_logprobs, strict=False)
            ]
            for one in scores
        ]
    return written
