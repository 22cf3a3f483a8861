"""Probes, state, metrics, and where flags may be written."""

from prometheus_client.parser import text_string_to_metric_families

from firsttoken_api import metrics as table
from firsttoken_api.state import EngineState
from runtime.fake_engine import Script
from runtime.serving import serving


async def _get(served, path: str) -> tuple[int, str]:
    async with served.session.get(f"{served.ops_url}{path}") as response:
        return response.status, await response.text()


async def test_a_loading_server_is_live_and_not_ready():
    async with serving(Script(load_s=0.9), is_settled=False) as served:
        assert (await _get(served, "/livez"))[0] == 200
        status, why = await _get(served, "/readyz")
        assert (status, why.startswith("loading (")) == (503, True)
        state = EngineState.model_validate(await served.state())
        assert (state.phase, state.model) == ("Loading", "fake")
        await served.service.client.settled.wait()
        assert await _get(served, "/readyz") == (200, "ok\n")
        state = EngineState.model_validate(await served.state())
        assert (state.phase, state.architecture, state.kv.blocks_total) == ("Ready", "fake", 16)


async def test_metrics_are_the_table_and_parse():
    async with serving(Script(token_s=0.02)) as served:
        await served.post("/v1/completions", {"prompt": "abc", "max_tokens": 5})
        await served.post("/v1/completions", {"prompt": ""})
        async with served.session.get(f"{served.ops_url}/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            families = list(text_string_to_metric_families(await response.text()))
    samples = {
        (sample.name, *sample.labels.values()): sample.value for one in families for sample in one.samples
    }
    exported = {one.name for one in families if not one.name.endswith("_created")}
    assert exported == {row.name for row in table.of(table.Owner.ENGINE)}
    assert samples["vllm:time_to_first_token_seconds_count", "0", "fake"] == 1
    assert samples["vllm:inter_token_latency_seconds_count", "0", "fake"] == 4
    assert samples["vllm:request_queue_time_seconds_count", "0", "fake"] == 1
    assert samples["vllm:prompt_tokens_total", "0", "fake"] == 3
    assert samples["vllm:generation_tokens_total", "0", "fake"] == 5
    assert samples["vllm:request_success_total", "0", "length", "fake"] == 1
    assert samples["firsttoken_engine_requests_rejected_total", "0", "fake", "400"] == 1
    assert samples["firsttoken_engine_flag_enabled", "0", "paged-kv", "fake"] == 1


WRONG_DOCUMENTS = {
    "{}": "generation",
    "[": None,
    '{"generation": 1, "flags": [{"name": 5}]}': "flags.0.name",
}


async def test_wrong_flags_documents_are_refused():
    async with serving() as served:
        for body, param in WRONG_DOCUMENTS.items():
            async with served.session.put(f"{served.ops_url}/flags", data=body) as response:
                assert response.status == 400
                assert (await response.json())["error"]["param"] == param
        async with served.session.put(f"{served.url}/flags", data="{}") as response:
            assert response.status == 404
