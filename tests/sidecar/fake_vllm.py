"""A vLLM server as far as a sidecar sees one: what it answers was recorded from vLLM 0.32 (`vllm/`).

`test_real_vllm` records anew.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from yarl import URL

from sidecar import fakes

RECORDED = Path(__file__).parent / "vllm"


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


@dataclass
class FakeVllm:
    """What it does next is set by the test on its fields."""

    port: int = 0
    is_dead: bool = False
    metrics: list[bytes] = field(default_factory=lambda: [recorded("idle.prom")])
    """One for each look; the last one stays."""
    models_status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    runners: list[web.AppRunner] = field(default_factory=list)

    @property
    def url(self) -> URL:
        return URL(f"http://{fakes.LOOPBACK}:{self.port}")

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/health", self._health)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, fakes.LOOPBACK, self.port, reuse_address=True).start()
        self.port = runner.addresses[0][1]
        self.runners.append(runner)

    async def stop(self) -> None:
        for runner in self.runners:
            await runner.cleanup()
        self.runners.clear()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_dead else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = self.metrics.pop(0) if len(self.metrics) > 1 else self.metrics[0]
        return web.Response(body=body, content_type="text/plain")

    async def _models(self, request: web.Request) -> web.Response:
        return web.Response(status=self.models_status, body=recorded("models.json"))

    async def _chat(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.headers.append(dict(request.headers))
        return web.Response(body=recorded("stream.sse"), content_type="text/event-stream")


@contextlib.asynccontextmanager
async def running(**fields: object) -> AsyncIterator[FakeVllm]:
    fake = FakeVllm(**fields)  # type: ignore[arg-type]
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()
