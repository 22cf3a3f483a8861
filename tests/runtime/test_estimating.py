"""The ops port says what of a request would be computed, without asking the engine and without a step."""

import asyncio

import pytest

from firsttoken_api import names
from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from runtime.fake_engine import Script
from runtime.serving import Served, serving


async def estimate(served: Served, body: object, headers: dict[str, str] | None = None) -> tuple[int, dict]:
    async with served.session.post(f"{served.ops_url}/estimate", json=body, headers=headers) as response:
        return response.status, await response.json()


PROMPT = "abcdefghij" * 5


async def test_what_was_computed_is_counted_as_cached():
    async with serving(is_behind_sidecar=True) as served:
        flags = (EffectiveFlag(name="prefix-cache", enabled=True),)
        await served.service.client.set_flags(
            HotSettings(generation=1, flags=flags, objective=Objective(ttft_p95_s=1.0))
        )
        status, before = await estimate(served, {"prompt": PROMPT, "max_tokens": 5})
        assert (status, before) == (200, {"prompt_tokens": 50, "cached_tokens": 0, "ahead_tokens": 0})
        await served.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 5})
        _, after = await estimate(served, {"prompt": PROMPT})
        size = served.service.client.stats.block_size_tokens
        assert after["cached_tokens"] == 49 // size * size > 0
        _, of_another = await estimate(served, {"prompt": PROMPT}, {names.HEADER_TENANT: "other"})
        assert of_another["cached_tokens"] == 0
        _, scored = await estimate(served, {"prompt": PROMPT, "prompt_logprobs": 1})
        assert scored["cached_tokens"] == 0, "such a request reads no cache"


async def test_several_prompts_and_chats_are_counted_whole():
    async with serving() as served:
        _, two = await estimate(served, {"prompt": ["abc", "defg"]})
        assert two["prompt_tokens"] == 7
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        _, counted = await served.post("/tokenize", chat)
        assert (await estimate(served, chat))[1]["prompt_tokens"] == counted["count"] > 5


async def test_it_answers_while_the_engine_computes():
    async with serving(Script(token_s=0.5)) as served:
        busy = asyncio.create_task(served.post("/v1/completions", {"prompt": "abc", "max_tokens": 50}))
        while not await served.is_busy():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        steps = served.service.client.stats
        async with asyncio.timeout(0.4):
            assert (await estimate(served, {"prompt": PROMPT}))[0] == 200
        assert served.service.client.stats is steps, "no step has ended in between"
        busy.cancel()


@pytest.mark.parametrize(
    ("body", "param"), [({"prompt": 5.5}, "prompt"), ({"messages": []}, "messages"), ([], None)]
)
async def test_what_the_request_would_be_refused_for(body: object, param: str | None):
    async with serving() as served:
        status, answer = await estimate(served, body)
        assert (status, answer["error"]["param"]) == (400, param)


async def test_clients_cannot_ask():
    async with serving() as served:
        assert (await served.post("/estimate", {"prompt": "abc"}))[0] == 404
