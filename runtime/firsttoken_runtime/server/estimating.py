"""`POST /estimate` on the ops port: what of a request would be computed, before anybody decides to send it.

A sidecar asks with the client's own body and waits no longer than 20 ms. The text is made to tokens as for a
real request, and looked up in the server's index of what the cache probably has; the engine is not asked and
no step waits.
"""

from aiohttp import web

from firsttoken_runtime.server import http, prompt, tenant, wire
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.service import PREFIX_CACHE, Service


async def estimate(service: Service, incoming: web.Request) -> web.StreamResponse:
    """A body with `messages` is a chat, any other a completion. Raises ApiError as the request would."""
    raw = await http.read_body(incoming)
    body: ChatRequest | CompletionRequest
    if b'"messages"' in raw:
        body = await service.parse(ChatRequest, raw)
    else:
        body = await service.parse(CompletionRequest, raw)
    resolved = service.resolve(incoming.headers, body.model)
    salt = tenant.salt(service.tenants.of(incoming), body.cache_salt)
    service.check_ready()
    prompts = await service.in_thread(lambda: _prompts(service, body))
    cached = 0
    if PREFIX_CACHE in service.client.flags.enabled and body.prompt_logprobs is None:
        cached = sum(service.client.probably_cached(one.ids, salt) for one in prompts)
    reply: wire.RequestEstimate = {
        "prompt_tokens": sum(len(one.ids) for one in prompts),
        "cached_tokens": cached,
        "ahead_tokens": service.tokens_ahead(resolved.request_class),
    }
    return http.json_response(reply)


def _prompts(service: Service, body: ChatRequest | CompletionRequest) -> list[prompt.Prompt]:
    capacity = service.client.token_capacity
    if isinstance(body, ChatRequest):
        return [prompt.chat(body, service.text_model, service.template, capacity)]
    return prompt.completion(body, service.text_model, capacity)
