import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from firsttoken_sidecar import engine_address, settings
from sidecar import fakes


@pytest.mark.parametrize("value", ["unix:/run/engine.sock", "http://127.0.0.1:8000"])
def test_both_forms_are_settings(value: str) -> None:
    read = settings.read({"FIRSTTOKEN_ENGINE_URL": value, "FIRSTTOKEN_ENGINE_OPS_URL": value})
    assert str(read.engine_url) == value
    assert engine_address.is_unix(read.engine_url) == value.startswith("unix")


@pytest.mark.parametrize("value", ["unix:", "unix:relative.sock", "unix://host/x", "https://a", "http://a/b"])
def test_other_forms_name_the_key(value: str) -> None:
    with pytest.raises(settings.SettingsError, match="FIRSTTOKEN_ENGINE_URL"):
        settings.read({"FIRSTTOKEN_ENGINE_URL": value})


async def test_http_over_a_unix_socket(tmp_path: Path) -> None:
    url = URL("unix:/tmp/ft-test.sock").with_path(str(tmp_path / "e.sock"))
    application = web.Application()

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    application.router.add_get("/v1/models", hello)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, url.path).start()
    async with (
        aiohttp.ClientSession(connector=engine_address.connector(url)) as client,
        client.get(engine_address.origin(url).with_path("/v1/models")) as response,
    ):
        assert await response.text() == "/v1/models"
    await runner.cleanup()


async def test_a_sidecar_speaks_with_its_engine_over_unix_sockets(tmp_path: Path) -> None:
    engine = fakes.FakeEngine(tokens=4)
    paths = (tmp_path / "api.sock", tmp_path / "ops.sock")
    for application, path in zip((engine._api(), engine._ops()), paths, strict=True):
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        engine.runners.append(runner)
    try:
        api, ops = (f"unix:{path}" for path in paths)
        async with fakes.beside(engine, ENGINE_URL=api, ENGINE_OPS_URL=ops) as sidecar:
            async with await sidecar.chat() as response:
                assert await response.read() == engine.sent_bytes()
            async with asyncio.timeout(2), sidecar.client.get(sidecar.ops("/metrics")) as response:
                assert "engine_thing 7" in await response.text()
    finally:
        await engine.stop()
