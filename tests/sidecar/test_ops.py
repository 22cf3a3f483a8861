from firsttoken_api.state import Phase
from sidecar import fakes


async def get(sidecar: fakes.Beside, path: str) -> tuple[int, str]:
    async with sidecar.client.get(sidecar.ops(path)) as response:
        return response.status, (await response.text()).strip()


async def test_a_ready_pod() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        for path in ("/livez", "/readyz", "/engine/livez", "/engine/startupz"):
            assert await get(sidecar, path) == (200, "ok")
        state = await sidecar.state()
        assert (state.pod, state.ready, state.flags.generation) == ("chat-0", True, 1)
        assert state.engine is not None
        assert state.engine.model == "fake"


async def test_while_the_engine_loads() -> None:
    async with fakes.engine(phase=Phase.LOADING) as engine, fakes.beside(engine, is_awaited=False) as sidecar:
        await sidecar.until(lambda state: state.engine is not None)
        assert await get(sidecar, "/readyz") == (503, "engine is loading (0%)")
        assert await get(sidecar, "/engine/startupz") == (200, "ok"), "no load is killed"
        engine.is_live = False
        await fakes.until_async(lambda: get(sidecar, "/engine/livez"), (503, "no progress"))
        assert await get(sidecar, "/livez") == (200, "ok")


async def test_without_an_engine() -> None:
    async with fakes.engine() as engine:
        pass
    async with fakes.beside(engine, is_awaited=False) as sidecar:
        assert (await get(sidecar, "/livez"))[0] == 200
        assert (await get(sidecar, "/engine/startupz"))[0] == 503
        status, text = await get(sidecar, "/metrics")
        assert status == 200
        assert "firsttoken_engine_up 0.0" in text
        assert (await sidecar.state()).engine is None


async def test_metrics_hold_the_engines_too() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with sidecar.client.get(sidecar.ops("/metrics")) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = await response.text()
        assert "engine_thing 7" in text
        assert "firsttoken_ready 1.0" in text
        assert "firsttoken_engine_up 1.0" in text


async def test_the_traffic_port_shows_none_of_it() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        for path in ("/state", "/metrics", "/livez", "/readyz"):
            async with sidecar.client.get(sidecar.url(path)) as response:
                assert response.status == 404
        async with sidecar.client.get(sidecar.ops("/v1/models")) as response:
            assert response.status == 404
