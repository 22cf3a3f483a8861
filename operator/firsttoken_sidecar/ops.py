"""The port for kubelet, operator and Prometheus: health, /state and metrics, and the engine's health too.

The engine listens on loopback only, so its probes are answered here, from what was last heard of it.
"""

import logging

from aiohttp import web

from firsttoken_sidecar import engines, logs, metrics, openmetrics, state, watch

logger = logging.getLogger(__name__)


class Ops:
    """Handlers of the ops port."""

    def __init__(
        self,
        reporter: state.Reporter,
        watched: watch.Watch,
        engine: engines.Engine,
        collector: metrics.SidecarCollector,
    ) -> None:
        self._reporter = reporter
        self._watch = watched
        self._engine = engine
        self._collector = collector
        self._limited = logs.Limited(logger)

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/livez", self.livez)
        application.router.add_get("/readyz", self.readyz)
        application.router.add_get("/state", self.state)
        application.router.add_get("/metrics", self.metrics)
        application.router.add_get("/engine/startupz", self.engine_livez)
        application.router.add_get("/engine/livez", self.engine_livez)
        return application

    async def livez(self, request: web.Request) -> web.Response:
        """The sidecar itself: alive while it answers, also during a drain and without an engine."""
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        return _verdict(self._reporter.why_not_ready())

    async def engine_livez(self, request: web.Request) -> web.Response:
        """Also the startup probe: an engine that loads and makes progress is alive, so no load is killed."""
        return _verdict(self._watch.why_not_live())

    async def state(self, request: web.Request) -> web.Response:
        return web.Response(text=self._reporter.state().model_dump_json(), content_type="application/json")

    async def metrics(self, request: web.Request) -> web.Response:
        """Our own, and the engine's while it answers."""
        try:
            of_engine = await self._engine.metrics()
        except engines.EngineUnreachableError as error:
            self._limited.warning("metrics without the engine's", error=str(error))
            of_engine = b""
        is_openmetrics = openmetrics.is_accepted(request.headers.get("Accept", ""))
        body, content_type = metrics.exposition(self._collector, of_engine, is_openmetrics=is_openmetrics)
        return web.Response(body=body, headers={"Content-Type": content_type})


def _verdict(why_not: str) -> web.Response:
    return web.Response(status=503 if why_not else 200, text=f"{why_not or 'ok'}\n")
