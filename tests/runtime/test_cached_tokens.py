"""Who finds whose cached KV, and what clients are told of it."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from firsttoken_api.state import FlagsState
from firsttoken_runtime.server import tenant
from runtime import fake_engine
from runtime.serving import Served, serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TENANT = "X-Firsttoken-Tenant"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script(kv_blocks=64), is_behind_sidecar=True) as running:
        yield running


def _cached(body: dict) -> int:
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


async def _ask(served: Served, text: str, who: str = "", **parameters: object) -> int:
    headers = {TENANT: who} if who else {}
    status, body = await served.post(
        COMPLETIONS, {"prompt": text, "max_tokens": 2, **parameters}, headers=headers
    )
    assert status == 200, body
    return _cached(body)


async def test_only_equal_tenants_and_salts_share(served: Served):
    text = "x" * 40
    for who in ("", "acme", "other"):
        for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}):
            assert await _ask(served, text, who, **salt) == 0, (who, salt)
    for who in ("", "acme", "other"):
        for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}):
            assert await _ask(served, text, who, **salt) == 32, (who, salt)


async def test_a_client_cannot_name_the_salt_of_a_tenant(served: Served):
    text = "y" * 40
    await _ask(served, text, "acme")
    for guess in ("acme", tenant.salt("acme", None), '["acme",null]'):
        assert await _ask(served, text, cache_salt=guess) == 0


async def test_scores_leave_what_they_computed_to_their_tenant(served: Served):
    text = "z" * 40
    await served.post("/v1/score", {"prompt": text, "cache_salt": "s"}, headers={TENANT: "acme"})
    assert await _ask(served, text, "acme") == 0
    assert await _ask(served, text, cache_salt="s") == 0
    assert await _ask(served, text, "acme", cache_salt="s") == 32


async def test_without_a_sidecar_the_header_means_nothing():
    async with serving() as alone:
        assert await _ask(alone, "x" * 40, "acme") == 0
        assert await _ask(alone, "x" * 40) == 32


async def test_a_wrong_header_is_a_400(served: Served):
    for path, body in ((COMPLETIONS, {"prompt": "x"}), ("/v1/score", {"prompt": "x"})):
        status, answer = await served.post(path, body, headers={TENANT: "a b"})
        assert (status, answer["error"]["param"]) == (400, TENANT)


async def test_batches_and_answers_count_each_prompt_once(served: Served):
    texts = ["p" * 40, "q" * 50]
    assert await _ask(served, texts, n=2) == 0, "each prompt's first answer computed it"
    assert await _ask(served, texts, n=2) == 32 + 48
    assert await _ask(served, [*texts, "r" * 40]) == 32 + 48


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_stream_says_the_same_as_the_whole(served: Served, path):
    text = f"{path} " * 4
    ask = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    ask |= {"max_tokens": 3, "n": 2, "ignore_eos": True}
    assert _cached((await served.post(path, ask))[1]) == 0
    whole = (await served.post(path, ask))[1]["usage"]
    assert whole["prompt_tokens_details"]["cached_tokens"] == 16 * ((whole["prompt_tokens"] - 1) // 16)
    events = await served.events(path, ask | {"stream_options": {"include_usage": True}})
    chunks = [json.loads(one) for one in events[:-1]]
    assert chunks[-1]["usage"] == whole
    running = {"include_usage": True, "continuous_usage_stats": True}
    events = await served.events(path, ask | {"stream_options": running})
    counts = {_cached(json.loads(one)) for one in events[:-1]}
    assert counts == {whole["prompt_tokens_details"]["cached_tokens"]}


async def test_the_declared_prefix_reaches_the_engine(served: Served):
    async def declared() -> int:
        async def is_reported() -> int:
            return (await served.state())["cache"]["rule_decisions_total"]["shared"]

        return await is_reported()

    before = await declared()
    await _ask(served, "w" * 20, shared_prefix_tokens=16)
    assert await declared() == before + 16
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    await served.post(CHAT, {"messages": messages, "max_tokens": 1, "n": 2})
    assert await declared() == before + 16 + 2 * len("Be brief.")
    await served.post(CHAT, {"messages": messages, "max_tokens": 1, "shared_prefix_tokens": 0})
    assert await declared() == before + 16 + 2 * len("Be brief.")
    await served.post("/v1/score", {"prompt": "w" * 20, "shared_prefix_tokens": 5})
    assert await declared() == before + 21 + 2 * len("Be brief.")
    for path, body in ((COMPLETIONS, {"prompt": "abc"}), ("/v1/score", {"prompt": "abc"})):
        status, answer = await served.post(path, body | {"shared_prefix_tokens": 4})
        assert (status, answer["error"]["param"]) == (400, "shared_prefix_tokens")


async def test_state_and_metrics_know_the_cache(served: Served):
    await _ask(served, "v" * 40)
    await _ask(served, "v" * 40)
    cache = (await served.state())["cache"]
    assert cache["query_tokens_total"] >= 80
    assert cache["hit_tokens_total"]["device"] >= 32
    assert cache["lineage"] == fake_engine.LINEAGE[:-2] + "00"
    async with served.session.get(f"{served.ops_url}/metrics") as response:
        text = await response.text()
    labels = 'engine="0",model_name="fake"'
    assert f"vllm:prefix_cache_queries_total{{{labels}}} {cache['query_tokens_total']:.1f}" in text
    assert f"vllm:prefix_cache_hits_total{{{labels}}} {cache['hit_tokens_total']['device']:.1f}" in text


@pytest.mark.parametrize("is_cached", [True, False])
async def test_answers_to_one_prompt_wait_for_its_tokens_once(served: Served, monkeypatch, is_cached):
    """Sixteen answers to a long prompt are not sixteen prompts for whoever decides about the queue."""
    enabled = ("prefix-cache",) if is_cached else ()
    monkeypatch.setattr(served.service.client._flag_switch, "state", FlagsState(enabled=enabled))
    seen = []
    monkeypatch.setattr(served.service, "admit", lambda lengths, kind: seen.append(lengths))
    await _ask(served, ["a" * 20, "b" * 30], n=2)
    await served.post(COMPLETIONS, {"prompt": "c" * 5, "n": 2, "max_tokens": 1, "prompt_logprobs": 0})
    assert seen == [[20, 0, 30, 0] if is_cached else [20, 20, 30, 30], [5, 5]]
