"""/v1/chat/completions and /v1/completions: one request from its body to its last byte.

Prompts and answers make one sequence each; everything about text (templates, tokens, grammars) is done in
a thread beforehand, so that the event loop only moves tokens to texts to clients.
"""

from collections.abc import Callable

from aiohttp import web

from firsttoken_api import names
from firsttoken_runtime.server import (
    http,
    message,
    plan,
    prompt,
    request,
    stamps,
    structured,
    tenant,
    timing_wanted,
)
from firsttoken_runtime.server.choice import Choice, Delta, Reading
from firsttoken_runtime.server.logprobs import prompt_logprobs
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.replies import ChatReply, CompletionReply, Reply
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.sequence import Group
from firsttoken_runtime.server.service import Service
from firsttoken_runtime.server.stream import EventStream


async def chat(service: Service, incoming: web.Request) -> web.StreamResponse:
    timer = service.timer("chat", incoming.headers)
    body = await service.parse(ChatRequest, await http.read_body(incoming))

    def prepare(capacity: int) -> plan.Prepared:
        calls = message.tool_format(body, service.text_model, service.template)
        constraint = structured.constraint(body, calls)
        one = prompt.chat(body, service.text_model, service.template, capacity)
        return plan.Prepared([one], constraint, calls)

    return await _answer(service, incoming, body, timer, prepare)


async def completions(service: Service, incoming: web.Request) -> web.StreamResponse:
    timer = service.timer("text_completion", incoming.headers)
    body = await service.parse(CompletionRequest, await http.read_body(incoming))

    def prepare(capacity: int) -> plan.Prepared:
        constraint = structured.constraint(body)
        return plan.Prepared(prompt.completion(body, service.text_model, capacity), constraint)

    return await _answer(service, incoming, body, timer, prepare)


async def _answer(
    service: Service,
    incoming: web.Request,
    body: plan.Body,
    timer: RequestTimer,
    prepare: Callable[[int], plan.Prepared],
) -> web.StreamResponse:
    resolved = service.resolve(incoming.headers, body.model)
    timing = timing_wanted.of_headers(incoming.headers)
    salt = tenant.salt(service.tenants.of(incoming), body.cache_salt)
    service.check_ready()
    with service.room():
        prepared = await service.in_thread(lambda: prepare(service.client.token_capacity))
        await service.grammars.check(prepared.constraint, service.tenants.client(incoming))
        service.check_ready()
        wanted, choices = plan.plan(service, body, resolved, prepared, salt)
        prompt_tokens = sum(len(one.ids) for one in prepared.prompts)
        transport = incoming.transport
        cut = transport.abort if body.stream and transport is not None else None
        async with request.submitted(
            service, wanted, prompt_tokens, resolved, timer, lambda: _end(choices), cut
        ) as group:
            reply: Reply
            if isinstance(body, ChatRequest):
                reply = ChatReply(service.served_name, has_usage=body.wants_usage)
            else:
                reply = CompletionReply(service.served_name, has_usage=body.wants_usage)
            if not body.stream:
                return await _whole(service, body, group, choices, reply, timer, timing)
            stream = EventStream(
                incoming,
                reply,
                timer,
                keep_alive_s=service.keep_alive_s,
                has_usage=body.wants_usage,
                has_running_usage=body.wants_running_usage,
                timing=timing,
            )
            return await stream.run(group, choices)


def _end(choices: list[Choice]) -> tuple[str | None, int]:
    """Why a request has ended, None if one of its answers has not, and how many tokens it has made."""
    reasons = [choice.answer.finish_reason for choice in choices]
    return (
        None if None in reasons else reasons[0],
        sum(choice.answer.completion_tokens for choice in choices),
    )


async def _whole(
    service: Service,
    body: plan.Body,
    group: Group,
    choices: list[Choice],
    reply: Reply,
    timer: RequestTimer,
    timing: timing_wanted.TimingWanted,
) -> web.Response:
    deltas: list[list[Delta]] = [[] for _ in choices]
    reading = Reading(group, choices, timer)
    while not reading.has_ended:
        await group.wait()
        for choice, new in reading.take():
            deltas[choice.index] += new
            timer.text()
    whole = reply.whole(choices, deltas)
    if body.prompt_logprobs is not None:
        top = body.prompt_logprobs
        await service.in_thread(lambda: _add_prompt_logprobs(whole, top, choices, service))
    if timing.is_in_answer and timer.timing is not None:
        whole["timing"] = timer.timing.document()
    headers = {}
    if timing.is_stamped and timer.timing is not None:
        headers[names.HEADER_STAMPS] = stamps.header(choices, timer.timing, timer.since_first_text_s())
    return http.json_response(whole, headers=headers)


def _add_prompt_logprobs(whole: dict[str, object], top: int, choices: list[Choice], service: Service) -> None:
    """As vLLM: in each choice of a completion, at the top of a chat. Slow for many long prompts."""
    token_text = service.text_model.token_text
    written = []
    for choice in choices:
        assert choice.prompt_scores is not None, "they come before the first token"
        written.append(prompt_logprobs(choice.prompt.ids, choice.prompt_scores, top, token_text))
    if whole["object"] == ChatReply.whole_object:
        whole["prompt_logprobs"] = written[0]
        return
    of_whole = whole["choices"]
    assert isinstance(of_whole, list)
    for one, logprobs in zip(of_whole, written, strict=True):
        one["prompt_logprobs"] = logprobs
