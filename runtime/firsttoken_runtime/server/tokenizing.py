"""/tokenize and /detokenize, with vLLM's bodies and answers. The engine is not asked."""

from aiohttp import web

from firsttoken_api import errors
from firsttoken_runtime.server import http, prompt, wire
from firsttoken_runtime.server.openai_models import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizePromptRequest,
)
from firsttoken_runtime.server.service import Service


async def tokenize(service: Service, incoming: web.Request) -> web.StreamResponse:
    """A body with `messages` is a chat, any other a text."""
    raw = await http.read_body(incoming)
    body: TokenizeChatRequest | TokenizePromptRequest
    if b'"messages"' in raw and b'"prompt"' not in raw:
        body = await service.parse(TokenizeChatRequest, raw)
    else:
        body = await service.parse(TokenizePromptRequest, raw)
    service.resolve(incoming.headers, body.model)
    service.check_ready()
    with service.room():
        return http.json_response(await service.in_thread(lambda: _tokens(service, body)))


async def detokenize(service: Service, incoming: web.Request) -> web.StreamResponse:
    body = await service.parse(DetokenizeRequest, await http.read_body(incoming))
    service.resolve(incoming.headers, body.model)
    service.check_ready()
    assert service.client.ready is not None
    size = service.client.ready.vocabulary_size
    if (largest := max(body.tokens, default=0)) >= size:
        raise errors.BadRequestError(
            f"tokens has {largest}; the vocabulary ends at {size - 1}", param="tokens"
        )
    with service.room():
        text = await service.in_thread(lambda: service.text_model.decode(body.tokens))
    reply: wire.Text = {"prompt": text}
    return http.json_response(reply)


def _tokens(service: Service, body: TokenizeChatRequest | TokenizePromptRequest) -> wire.Tokens:
    """A text that does not fit the context is counted all the same, up to what a body can hold."""
    assert service.client.ready is not None
    capacity = http.MAX_BODY_BYTES
    if isinstance(body, TokenizeChatRequest):
        ids = prompt.chat(body, service.text_model, service.template, capacity).ids
    else:
        ids = prompt.encode(
            body.prompt,
            service.text_model,
            capacity,
            param="prompt",
            add_special_tokens=body.add_special_tokens,
        ).ids
    names = [service.text_model.token_text.to_text(token_id) for token_id in ids]
    return {
        "count": len(ids),
        "max_model_len": service.client.ready.max_model_len,
        "tokens": ids,
        "token_strs": names if body.return_token_strs else None,
    }
