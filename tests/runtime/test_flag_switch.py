"""Hot settings reach the engine, and what is in force is what it answered."""

from firsttoken_api import flags
from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.server import flag_switch
from runtime.fake_engine import Script
from runtime.serving import serving, until


def _settings(generation: int, **enabled: bool) -> HotSettings:
    effective = tuple(
        EffectiveFlag(name=name, enabled=enabled.get(name.replace("-", "_"), True)) for name in flags.BUILT
    )
    return HotSettings(generation=generation, flags=effective, objective=Objective(ttft_p95_s=0.5)).sealed()


async def test_flags_are_switched_and_reported():
    async with serving() as served:
        settings = _settings(3, chunked_prefill=False)
        async with served.session.put(f"{served.ops_url}/flags", data=settings.model_dump_json()) as response:
            assert response.status == 200
            answer = await response.json()
        assert answer["generation"] == 3
        assert answer["hash"] == settings.hash
        assert answer["enabled"] == [name for name in flags.BUILT if name != "chunked-prefill"]
        assert (await served.state())["flags"] == answer


async def test_the_state_after_a_switch_has_nothing_of_before_it():
    async with serving() as served:

        async def has_reported() -> bool:
            return bool((await served.state())["cache"]["lineage"])

        await until(has_reported)
        before = (await served.state())["cache"]
        await served.service.client.set_flags(_settings(2))
        state = await served.state()  # sooner than the next heartbeat
        assert state["flags"]["generation"] == 2
        assert (before["kv_type"], state["cache"]["kv_type"]) == ("full", "int8")
        assert state["cache"]["lineage"] not in ("", before["lineage"])
        assert (before["kv_bytes_per_token"], state["cache"]["kv_bytes_per_token"]) == (200, 100)
        await served.service.client.set_flags(_settings(3, kv_int8=False, kv_fp8=False))
        assert (await served.state())["cache"]["kv_bytes_per_token"] == 200


async def test_flags_that_the_engine_refuses_stay_off_and_are_reported():
    async with serving(Script(flags_error="chunkTokens of chunked-prefill is 3")) as served:
        async with served.session.put(
            f"{served.ops_url}/flags", data=_settings(2).model_dump_json()
        ) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"] == "chunkTokens of chunked-prefill is 3"
        state = await served.state()
        assert state["flags"]["generation"] == 0
        assert "chunkTokens" in state["flags"]["error"]


async def test_a_flags_document_at_start_is_in_force_at_once():
    settings = _settings(7, paged_kv=False)
    async with serving(initial=settings) as served:
        state = await served.state()
        assert (state["flags"]["generation"], state["flags"]["hash"]) == (7, settings.hash)
        assert "paged-kv" not in state["flags"]["enabled"]


async def test_a_switch_that_takes_too_long_is_an_error_and_the_next_one_is_not_confused(monkeypatch):
    monkeypatch.setattr(flag_switch, "FLAGS_TIMEOUT_S", 0.3)
    async with serving(Script(flags_s=0.5)) as served:
        for generation in (2, 3):
            async with served.session.put(
                f"{served.ops_url}/flags", data=_settings(generation).model_dump_json()
            ) as response:
                assert response.status == 503

        async def is_switched() -> bool:
            return (await served.state())["flags"]["generation"] == 3

        await until(is_switched)
