import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from firsttoken_api.state import Phase
from firsttoken_sidecar import engine_firsttoken, engines
from sidecar import fakes


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def adapter(session: aiohttp.ClientSession, fake: fakes.FakeEngine) -> engine_firsttoken.FirsttokenEngine:
    return engine_firsttoken.FirsttokenEngine(session, fake.api_url, fake.ops_url)


async def scripted(status: int, body: bytes) -> fakes.FakeEngine:
    """An engine whose ops port answers everything alike."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    fake = fakes.FakeEngine()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    fake.ops_port = await fake._listen(application, 0)
    return fake


async def test_a_probe_tells_life_and_phase(session: aiohttp.ClientSession) -> None:
    async with fakes.engine(phase=Phase.LOADING) as fake:
        engine = adapter(session, fake)
        assert engine.api_url == fake.api_url
        probe = await engine.probe()
        assert (probe.is_live, probe.is_ready, probe.reason) == (True, False, "")
        fake.phase = Phase.READY
        assert (await engine.probe()).is_ready
        fake.is_live = False
        probe = await engine.probe()
        assert (probe.is_live, probe.is_ready, probe.reason) == (False, False, "no progress")


async def test_nobody_there(session: aiohttp.ClientSession) -> None:
    async with fakes.engine() as fake:
        pass
    engine = adapter(session, fake)
    for ask in (engine.probe, engine.metrics, lambda: engine.apply_flags(b"{}")):
        with pytest.raises(engines.EngineUnreachableError, match="of the engine"):
            await ask()


async def test_an_engine_that_does_not_answer_in_time(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "PROBE_TIMEOUT_S", 0.1)
    async with fakes.engine() as fake:
        fake.ops_port = fake.api_port  # whose answers are slow
        fake.first_token_s = 5.0

        async def hang(self: object, request: web.Request) -> web.Response:
            await asyncio.sleep(5)
            return web.Response()

        monkeypatch.setattr(fakes.FakeEngine, "_record", hang)
        with pytest.raises(engines.EngineUnreachableError, match="TimeoutError"):
            await adapter(session, fake).probe()


async def test_answers_that_are_not_ours(session: aiohttp.ClientSession) -> None:
    fake = await scripted(200, b'{"phase": "Dancing", "generation": "many"}')
    engine = adapter(session, fake)
    with pytest.raises(engines.EngineUnreachableError, match="not understood: phase"):
        await engine.probe()
    with pytest.raises(engines.EngineUnreachableError, match="not understood"):
        await engine.apply_flags(b'{"generation": 1}')
    await fake.stop()
    fake = await scripted(404, b"nothing here")
    engine = adapter(session, fake)
    assert await engine.probe() == engines.Probe(False, "nothing here", None)
    with pytest.raises(engines.EngineUnreachableError, match="404"):
        await engine.metrics()
    with pytest.raises(engines.EngineUnreachableError, match="404: nothing here"):
        await engine.apply_flags(b"{}")
    await fake.stop()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "params.chunkTokens: 3"}}', "params.chunkTokens: 3"),
        (b"plain", "plain"),
        (b'{"error": "x"}', '{"error": "x"}'),
        (b"y" * 600, "y" * 499 + "…"),
    ],
)
async def test_a_refusal_carries_the_engines_words(
    session: aiohttp.ClientSession, body: bytes, message: str
) -> None:
    fake = await scripted(400, body)
    with pytest.raises(engines.FlagsRefusedError) as refused:
        await adapter(session, fake).apply_flags(b"{}")
    assert str(refused.value) == message
    await fake.stop()
