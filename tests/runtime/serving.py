"""A server with a fake engine on a free loopback port, for the tests of everything above the engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from firsttoken_api.hot_settings import HotSettings
from firsttoken_runtime.server import app, life
from firsttoken_runtime.server.engine_client import EngineClient
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.service import Service
from firsttoken_runtime.server.tokenizer import TextModel
from runtime import byte_text, fake_engine

MODULE = fake_engine.__name__


@dataclass(frozen=True)
class Served:
    """A running server and a client session on it."""

    service: Service
    session: aiohttp.ClientSession
    url: str
    ops_url: str

    async def post(self, path: str, body: object = None, **kwargs: object) -> tuple[int, dict]:
        async with self.session.post(
            f"{self.url}{path}", **({"json": body} | kwargs if "data" not in kwargs else kwargs)
        ) as response:
            return response.status, await response.json()

    async def state(self) -> dict:
        async with self.session.get(f"{self.ops_url}/state") as response:
            return await response.json()

    async def is_busy(self) -> bool:
        return bool((await self.state())["running"])

    async def is_idle(self) -> bool:
        return not await self.is_busy()

    async def events(self, path: str, body: dict) -> list[str]:
        """The `data:` payloads and comments of a stream, in order."""
        async with self.session.post(f"{self.url}{path}", json=body | {"stream": True}) as response:
            assert response.status == 200, await response.text()
            text = (await response.read()).decode()
        return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 5.0) -> None:
    """Wait for a condition that nobody announces."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(
    script: fake_engine.Script | None = None,
    *,
    initial: HotSettings | None = None,
    text_model: TextModel | None = None,
    limits: life.Limits | None = None,
    is_settled: bool = True,
    keep_alive_s: float = 10.0,
    max_open_requests: int = 1024,
    is_behind_sidecar: bool = False,
) -> AsyncIterator[Served]:
    metrics = Metrics("fake")
    client = EngineClient(
        (script or fake_engine.Script()).settings(),
        initial,
        engine_module=MODULE,
        limits=limits,
        on_step=metrics.step,
    )
    service = Service(
        "fake",
        client,
        metrics,
        keep_alive_s=keep_alive_s,
        max_open_requests=max_open_requests,
        is_behind_sidecar=is_behind_sidecar,
    )
    service.use_text(text_model or byte_text.text_model())
    api = await app.listen(app.api_application(service, with_ops=False), "127.0.0.1", 0)
    ops = await app.listen(app.ops_application(service), "127.0.0.1", 0)
    await client.start()
    try:
        if is_settled:
            await client.settled.wait()
        async with aiohttp.ClientSession() as session:
            yield Served(service, session, f"http://127.0.0.1:{api.port}", f"http://127.0.0.1:{ops.port}")
    finally:
        await client.close()
        await api.close()
        await ops.close()
        await service.close()
