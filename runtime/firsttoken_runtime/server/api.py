"""The endpoints of clients: which path is answered by what, the models, and the refusals counted."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from firsttoken_api import errors
from firsttoken_runtime.server import generating, http, openapi, score, tokenizing, wire
from firsttoken_runtime.server.service import Service

Endpoint = Callable[[Service, web.Request], Awaitable[web.StreamResponse]]

POSTS: dict[str, Endpoint] = {
    "/v1/chat/completions": generating.chat,
    "/v1/completions": generating.completions,
    "/v1/score": score.score,
    "/tokenize": tokenizing.tokenize,
    "/detokenize": tokenizing.detokenize,
}


class Api:
    """Handlers of /v1/*, /tokenize, /detokenize, /health and /openapi.json."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_to(self, app: web.Application) -> None:
        for path, endpoint in POSTS.items():
            app.router.add_post(path, self._counting(endpoint))
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{name:.+}", self.model)
        app.router.add_get("/health", self.health)
        app.router.add_get("/openapi.json", self.openapi)

    async def models(self, _: web.Request) -> web.Response:
        self._service.check_ready()
        models: wire.ModelList = {"object": "list", "data": [self._card()]}
        return http.json_response(models)

    async def model(self, request: web.Request) -> web.Response:
        self._service.check_ready()
        self._service.check_model(request.match_info["name"])
        return http.json_response(self._card())

    async def health(self, _: web.Request) -> web.Response:
        self._service.check_ready()
        return web.Response()

    async def openapi(self, _: web.Request) -> web.Response:
        return http.json_response(openapi.document())

    def _counting(self, endpoint: Endpoint) -> http.Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                return await endpoint(self._service, request)
            except errors.ApiError as error:
                self._service.metrics.rejected(error.status)
                raise

        return handler

    def _card(self) -> wire.ModelCard:
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
