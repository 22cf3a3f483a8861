"""The OpenAI endpoints: one request from its body to its last byte."""

from collections.abc import Callable

from aiohttp import web

from firsttoken_api import errors
from firsttoken_runtime.server import http, prompt, sampling
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.metrics import RequestTimer
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest, parse
from firsttoken_runtime.server.replies import ChatReply, CompletionReply, Reply
from firsttoken_runtime.server.sequences import Sequence
from firsttoken_runtime.server.service import Service
from firsttoken_runtime.server.stream import EventStream

# Tokens before a completion that the detokenizer looks at, so that its first word keeps its space.
CONTEXT_TOKENS = 4

# Headers of later versions: a request that asks for them must not be served as if it had not.
REFUSED_HEADERS = ("X-Firsttoken-Class", "X-Firsttoken-Route")


class Api:
    """Handlers of /v1/* and /health."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/v1/chat/completions", self.chat_completions)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{name:.+}", self.model)
        app.router.add_get("/health", self.health)

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(self._chat, request)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._counting(self._complete, request)

    async def models(self, _: web.Request) -> web.Response:
        self._service.check_ready()
        return http.json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: web.Request) -> web.Response:
        self._service.check_ready()
        self._service.check_model(request.match_info["name"])
        return http.json_response(self._card())

    async def health(self, _: web.Request) -> web.Response:
        self._service.check_ready()
        return web.Response()

    async def _counting(self, handler: http.Handler, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except errors.ApiError as error:
            self._service.metrics.rejected(error.status)
            raise

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        timer = RequestTimer(self._service.metrics)
        body = parse(ChatRequest, await self._read(request), self._service.unknown_names)
        service = self._service
        return await self._answer(
            request,
            body,
            timer,
            encode=lambda capacity: prompt.chat(body, service.text_model, service.template, capacity),
            param="messages",
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        timer = RequestTimer(self._service.metrics)
        body = parse(CompletionRequest, await self._read(request), self._service.unknown_names)
        return await self._answer(
            request,
            body,
            timer,
            encode=lambda capacity: prompt.completion(body, self._service.text_model, capacity),
            param="prompt",
        )

    async def _read(self, request: web.Request) -> bytes:
        for header in REFUSED_HEADERS:
            if header in request.headers:
                raise errors.BadRequestError(f"{header} is not supported in this version", param=header)
        return await http.read_body(request)

    async def _answer(
        self,
        request: web.Request,
        body: ChatRequest | CompletionRequest,
        timer: RequestTimer,
        *,
        encode: Callable[[int], list[int]],
        param: str,
    ) -> web.StreamResponse:
        self._service.check_model(body.model)
        self._service.check_ready()
        with self._service.room():
            return await self._answer_in_room(request, body, timer, encode, param)

    async def _answer_in_room(
        self,
        request: web.Request,
        body: ChatRequest | CompletionRequest,
        timer: RequestTimer,
        encode: Callable[[int], list[int]],
        param: str,
    ) -> web.StreamResponse:
        service = self._service
        ids = await service.in_thread(lambda: encode(service.client.token_capacity))
        service.check_ready()
        assert service.client.ready is not None
        vocabulary_size, capacity = service.client.ready.vocabulary_size, service.client.token_capacity
        sampling.check_prompt(ids, vocabulary_size, capacity, param)
        params = sampling.parameters(
            body,
            service.text_model.sampling,
            prompt_tokens=len(ids),
            vocabulary_size=vocabulary_size,
            capacity=capacity,
        )
        continues = isinstance(body, CompletionRequest)
        answer = Answer(
            Detokenizer(service.text_model.tokenizer, tuple(ids[-CONTEXT_TOKENS:]) if continues else ()),
            stops=body.stops,
            include_stop=body.include_stop_str_in_output,
            min_tokens=body.min_tokens,
            stop_token_ids=params.stop_token_ids,
        )
        reply = CompletionReply(service.served_name) if continues else ChatReply(service.served_name)
        transport = request.transport
        cut = transport.abort if body.stream and transport is not None else None
        service.metrics.accepted(len(ids))
        with service.client.sequence(ids, params, timer.arrival_s, cut) as sequence:
            try:
                if not body.stream:
                    return await _whole(sequence, answer, reply, timer)
                return await EventStream(request, service.keep_alive_s).run(
                    sequence, answer, reply, include_usage=body.wants_usage, timer=timer
                )
            finally:
                ended = "error" if sequence.has_failed else "abort"
                timer.end(answer.finish_reason or ended, len(ids), answer.completion_tokens)

    def _card(self) -> dict[str, object]:
        name = self._service.served_name
        assert self._service.client.ready is not None
        return {
            "id": name,
            "object": "model",
            "created": self._service.created_at,
            "owned_by": "firsttoken",
            "root": name,
            "parent": None,
            "max_model_len": self._service.client.ready.max_model_len,
            "permission": [],
        }


async def _whole(sequence: Sequence, answer: Answer, reply: Reply, timer: RequestTimer) -> web.Response:
    text = ""
    while answer.finish_reason is None:
        tokens = await sequence.next_tokens()
        timer.tokens(tokens)
        text += answer.take(tokens)
        if text or answer.finish_reason is not None:
            timer.text()
    return http.json_response(reply.whole(text, sequence.prompt_tokens, answer))
