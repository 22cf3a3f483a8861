"""The official client against a running server: its own types check what is on the wire."""

from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from runtime import fake_engine
from runtime.serving import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = [{"role": "user", "content": "abc"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script()) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as own:
        yield own


async def test_choices_and_logprobs_of_a_chat(client: openai.AsyncOpenAI):
    answer = await client.chat.completions.create(
        model="fake", messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, max_tokens=3, seed=1
    )
    assert [choice.message.content for choice in answer.choices] == ["abc", "bc"]
    first = answer.choices[0].logprobs.content[0]
    assert (first.token, first.bytes, len(first.top_logprobs)) == ("a", [97], 2)
    assert answer.choices[1].finish_reason == "stop"


async def test_a_stream_through_the_clients_own_helper(client: openai.AsyncOpenAI):
    async with client.chat.completions.stream(
        model="fake", messages=MESSAGES, n=2, logprobs=True, stream_options={"include_usage": True}
    ) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "content.delta" in events
    assert "logprobs.content.done" in events
    assert [choice.message.content for choice in final.choices] == ["abc", "bc"]
    assert len(final.choices[0].logprobs.content) == 4
    assert final.usage.completion_tokens == 7


async def test_completions_with_batches_echo_and_logprobs(served: Served):
    """Not strictly: the client's types do not know what is null in a prompt and before the end."""
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        ask = client.completions.create
        answer = await ask(
            model="fake", prompt=["ab", "xyz"], max_tokens=2, echo=True, logprobs=1, logit_bias={"1": -100}
        )
        assert [choice.text for choice in answer.choices] == ["abab", "xyzxy"]
        assert answer.choices[1].logprobs.token_logprobs == [None, -0.75, -0.75, -0.75, -0.75]
        stream = await ask(
            model="fake",
            prompt=["ab", "xyz"],
            max_tokens=2,
            stream=True,
            stream_options={"include_usage": True},
        )
        texts = ["", ""]
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == ["ab", "xy"]
    assert chunk.choices == []
    assert chunk.usage.total_tokens == 9


async def test_what_is_wrong_is_named(client: openai.AsyncOpenAI):
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    for wrong, param in (
        ({"messages": [{"role": "user", "content": image}]}, "messages[0].content[0].type"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"extra_body": {"lora_request": {}}}, "lora_request"),
        ({"extra_headers": {"X-Firsttoken-Class": "urgent"}}, "X-Firsttoken-Class"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**{"model": "fake", "messages": MESSAGES} | wrong)
        assert caught.value.param == param
    with pytest.raises(openai.NotFoundError, match="adapter"):
        await client.chat.completions.create(model="fake-lora", messages=MESSAGES)
