"""The adapter of vLLM against a server that answers as a recorded one did, alone and with a whole sidecar."""

import json
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest

from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_api.state import Phase
from firsttoken_sidecar import engine_choice, engine_firsttoken, engine_vllm, engines, settings
from sidecar import fake_vllm, fakes

STARTED = ("chunked-prefill", "continuous-batching", "paged-kv", "prefix-cache", "priority")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def adapter(
    session: aiohttp.ClientSession,
    fake: fake_vllm.FakeVllm,
    started: tuple[str, ...] = STARTED,
    clock: Clock | None = None,
) -> engine_vllm.VllmEngine:
    return engine_vllm.VllmEngine(session, fake.url, started, 4, 512, clock or Clock())


def document(generation: int = 1, **flags: bool) -> bytes:
    """Flags by name, with `_` for `-`."""
    listed = tuple(
        EffectiveFlag(name=name.replace("_", "-"), enabled=enabled) for name, enabled in flags.items()
    )
    objective = Objective(ttft_p95_s=0.5)
    return HotSettings(generation=generation, flags=listed, objective=objective).sealed().to_json().encode()


async def test_a_port_that_is_not_open_yet_is_a_model_that_loads(session: aiohttp.ClientSession) -> None:
    clock = Clock()
    async with fake_vllm.running() as fake:
        pass
    engine = adapter(session, fake, clock=clock)
    probe = await engine.probe()
    assert probe.state is not None
    assert (probe.is_live, probe.is_ready, probe.state.phase) == (True, False, Phase.LOADING)
    clock.now += engine_vllm.LOADING_LIMIT_S + 1
    probe = await engine.probe()
    assert not probe.is_live
    assert "3600 s" in probe.reason


async def test_a_server_that_serves(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running(metrics=[fake_vllm.recorded("busy.prom")]) as fake:
        probe = await adapter(session, fake).probe()
        assert probe.is_ready
        assert probe.state is not None
        assert (probe.state.model, probe.state.max_model_len) == ("chat", 2048)
        assert probe.state.flags.enabled == STARTED
        assert probe.state.flags.generation == 0
        assert await adapter(session, fake).metrics() == fake_vllm.recorded("busy.prom")


async def test_a_dead_core_behind_a_living_server(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running(is_dead=True) as fake:
        probe = await adapter(session, fake).probe()
        assert (probe.is_live, probe.state) == (False, None)
        assert "503" in probe.reason


async def test_a_models_list_behind_a_key_costs_only_the_length(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running(models_status=401) as fake:
        probe = await adapter(session, fake).probe()
        assert probe.is_ready
        assert probe.state is not None
        assert probe.state.max_model_len == 0


async def test_somebody_else_on_the_port(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running(metrics=[b"engine_thing 7\n"]) as fake:
        with pytest.raises(engines.EngineUnreachableError, match="not understood"):
            await adapter(session, fake).probe()


async def test_what_it_was_started_with_is_in_force(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running() as fake:
        engine = adapter(session, fake)
        await engine.probe()
        for content in (document(4), document(5, prefix_cache=True, kv_int8=False)):
            taken = await engine.apply_flags(content)
            assert taken.enabled == STARTED
            probe = await engine.probe()
            assert probe.state is not None
            assert probe.state.flags == taken
        assert taken.generation == 5


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"prefix_cache": False}, ("flags.prefix-cache", "started with it", "cannot switch it off")),
        ({"kv_int8": True}, ("flags.kv-int8", "started without it", "cannot switch it on")),
        ({"prefix_cache": True, "length_control": True}, ("flags.length-control", "it runs with chunked")),
    ],
)
async def test_anything_else_is_refused_with_the_flag_named(
    session: aiohttp.ClientSession, asked: dict[str, bool], words: tuple[str, ...]
) -> None:
    async with fake_vllm.running() as fake:
        engine = adapter(session, fake)
        await engine.apply_flags(document(1))
        with pytest.raises(engines.FlagsRefusedError) as refused:
            await engine.apply_flags(document(2, **asked))
        assert all(word in str(refused.value) for word in words)
        probe = await engine.probe()
        assert probe.state is not None


async def test_a_document_that_does_not_parse_is_refused(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running() as fake:
        with pytest.raises(engines.FlagsRefusedError, match="generation"):
            await adapter(session, fake).apply_flags(b'{"flags": []}')


async def test_a_process_that_starts_anew_has_no_settings(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running() as fake:
        engine = adapter(session, fake)
        await engine.probe()
        await engine.apply_flags(document(4))
        await fake.stop()
        assert (await engine.probe()).state.phase is Phase.LOADING  # type: ignore[union-attr]
        await fake.start()
        probe = await engine.probe()
        assert probe.state is not None
        assert (probe.state.flags.generation, probe.state.flags.enabled) == (0, STARTED)


async def test_it_cannot_be_asked_what_is_ahead(session: aiohttp.ClientSession) -> None:
    async with fake_vllm.running() as fake:
        assert await adapter(session, fake).estimate(b"{}", {}, 1.0) is None


BODY = b'{"model": "chat", "priority": 7, "cache_salt": "of another", "stream": true}\n'


@pytest.mark.parametrize(
    ("started", "priority", "tenant", "expected"),
    [
        (STARTED, 10, "", {"priority": -10, "cache_salt": "of another"}),
        (STARTED, 0, "", {"priority": 0, "cache_salt": "of another"}),
        ((), 10, "", {"priority": 7, "cache_salt": "of another"}),
        ((), 10, "a", {"priority": 7}),
        (STARTED, -3, "a", {"priority": 3}),
    ],
)
async def test_class_and_tenant_go_into_the_body(
    session: aiohttp.ClientSession,
    started: tuple[str, ...],
    priority: int,
    tenant: str,
    expected: dict[str, object],
) -> None:
    engine = adapter(session, fake_vllm.FakeVllm(port=1), started)
    found = json.loads(engine.body_for(BODY, priority, tenant))
    assert {key: found[key] for key in expected} == expected
    assert found["stream"] is True
    if tenant:
        other = json.loads(engine.body_for(BODY, priority, "b"))
        assert len({found["cache_salt"], other["cache_salt"], "of another", tenant, "b"}) == 5
        assert json.loads(engine.body_for(BODY, 5, tenant))["cache_salt"] == found["cache_salt"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"a": 1', b"nonsense", b'"{}"'])
async def test_what_is_no_object_stays_as_it_is(session: aiohttp.ClientSession, body: bytes) -> None:
    assert adapter(session, fake_vllm.FakeVllm(port=1)).body_for(body, 3, "a") == body


def test_the_setting_chooses_the_adapter() -> None:
    ours = settings.read({})
    theirs = settings.read({"FIRSTTOKEN_ENGINE": "vllm", "FIRSTTOKEN_STARTED_FLAGS": "paged-kv,prefix-cache"})
    assert (ours.engine, theirs.started_flags) == ("firsttoken", ("paged-kv", "prefix-cache"))
    lent: aiohttp.ClientSession = object()  # type: ignore[assignment]
    assert isinstance(engine_choice.make(ours, lent, Clock()), engine_firsttoken.FirsttokenEngine)
    assert isinstance(engine_choice.make(theirs, lent, Clock()), engine_vllm.VllmEngine)
    with pytest.raises(settings.SettingsError, match="FIRSTTOKEN_ENGINE"):
        settings.read({"FIRSTTOKEN_ENGINE": "sglang"})


async def test_a_whole_sidecar_in_front(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "firsttoken_sidecar")
    stand_in = fakes.FakeEngine()
    async with fake_vllm.running() as fake:
        stand_in.api_port = stand_in.ops_port = fake.port
        async with fakes.beside(
            stand_in,
            flags=document(3),
            ENGINE="vllm",
            STARTED_FLAGS=",".join(STARTED),
            MAX_NUM_SEQS="4",
            CHUNK_TOKENS="512",
        ) as beside:
            state = await beside.until(lambda state: state.flags.generation == 3)
            assert state.engine is not None
            assert (state.engine.model, state.engine.max_num_seqs) == ("chat", 4)
            answer = await beside.client.post(
                beside.url("/v1/chat/completions"),
                data=b'{"model": "chat", "messages": [{"role": "user", "content": "hi"}], "stream": true}',
                headers={"Content-Type": "application/json"},
            )
            assert await answer.read() == fake_vllm.recorded("stream.sse")
            assert json.loads(fake.bodies[0])["priority"] == 0
            state = await beside.until(lambda state: state.ttft is not None and sum(state.ttft.counts) == 1)
            async with beside.client.get(beside.ops("/metrics")) as metrics:
                text = await metrics.text()
            assert "vllm:num_requests_running" in text
            assert "firsttoken_" in text
            beside.mounts.write_flags(document(4, kv_int8=True))
            beside.mounts.annotate("4.1")
            state = await beside.until(lambda state: state.flags.error)
            assert "flags.kv-int8" in state.flags.error
            assert state.ready, "it serves on with what it has"
