"""The operator's two HTTP ports: health for the kubelet, metrics for Prometheus.

Not kopf's own liveness endpoint: kopf runs only while this replica leads, and a standby must answer its
probes too. Liveness fails when a watch is stale (see `freshness`); an event loop that hangs answers nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import generate_latest

from firsttoken_operator import metrics


@asynccontextmanager
async def serving(
    counters: metrics.Metrics,
    health_port: int,
    metrics_port: int,
    unhealthy: Callable[[], str],
    collect: Callable[[], None],
    host: str | None = None,
) -> AsyncIterator[None]:
    """Both ports while inside. `unhealthy` says what is wrong, or nothing; `collect` refreshes gauges."""

    async def livez(_: web.Request) -> web.Response:
        problem = unhealthy()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def exposed(_: web.Request) -> web.Response:
        collect()
        return web.Response(
            body=generate_latest(counters.registry),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    health = web.Application()
    health.add_routes([web.get("/livez", livez), web.get("/readyz", readyz)])
    exposition = web.Application()
    exposition.add_routes([web.get("/metrics", exposed)])
    runners = [
        web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=1.0)
        for app in (health, exposition)
    ]
    try:
        for runner, port in zip(runners, (health_port, metrics_port), strict=True):
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()
