"""Endpoints for whoever runs the server: probes, metrics, state, estimates, the switch of hot settings."""

from aiohttp import web
from pydantic import ValidationError

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_runtime.server import estimating, http
from firsttoken_runtime.server.service import Service

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Ops:
    """Handlers of /livez, /readyz, /metrics, /state and, where only the machine itself asks, the others."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_reads_to(self, app: web.Application) -> None:
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/state", self.state)

    def add_writes_to(self, app: web.Application) -> None:
        app.router.add_put("/flags", self.put_flags)
        app.router.add_post("/estimate", self.estimate)

    async def livez(self, _: web.Request) -> web.Response:
        if self._service.client.is_live():
            return web.Response(text="ok\n")
        return web.Response(status=503, text=(self._service.client.life.error or "loading is stuck") + "\n")

    async def readyz(self, _: web.Request) -> web.Response:
        if self._service.is_ready:
            return web.Response(text="ok\n")
        state = self._service.state()
        why = state.error or f"loading ({state.load_progress:.0%})"
        return web.Response(status=503, text=why + "\n")

    async def metrics(self, _: web.Request) -> web.Response:
        text = self._service.metrics.exposition(self._service.state())
        return web.Response(body=text, headers={"Content-Type": METRICS_TYPE})

    async def state(self, _: web.Request) -> web.Response:
        return http.json_response(self._service.state().model_dump(mode="json"))

    async def estimate(self, request: web.Request) -> web.StreamResponse:
        return await estimating.estimate(self._service, request)

    async def put_flags(self, request: web.Request) -> web.Response:
        body = await http.read_body(request)
        try:
            settings = HotSettings.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise errors.BadRequestError(f"{where}: {first['msg']}", param=where or None) from error
        state = await self._service.client.set_flags(settings)
        return http.json_response(state.model_dump(mode="json"))
