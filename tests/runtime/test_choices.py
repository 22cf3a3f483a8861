"""Several prompts and several answers in one request: one sequence each, kept apart to the end."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime import byte_text, fake_engine
from runtime.serving import Served, serving, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TEXT = byte_text.text_model()

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script(token_s=0.002, wait_s=0.3)) as running:
        yield running


def _pieces(events: list[str]) -> dict[int, list[dict]]:
    """The chunks of each choice, in order."""
    found: dict[int, list[dict]] = {}
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            found.setdefault(choice["index"], []).append(choice)
    return found


async def test_each_choice_is_a_sequence_of_its_own(served: Served):
    status, body = await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 4, "n": 3, "seed": 1})
    assert status == 200
    assert [(one["index"], one["text"]) for one in body["choices"]] == [(0, "abca"), (1, "bcab"), (2, "cabc")]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 12


async def test_prompts_come_before_choices(served: Served):
    texts = ["abc", "xyz"]
    for prompts in (texts, [TEXT.encode(text, add_special_tokens=False) for text in texts]):
        _, body = await served.post(COMPLETIONS, {"prompt": prompts, "max_tokens": 3, "n": 2, "best_of": 2})
        assert [one["text"] for one in body["choices"]] == ["abc", "bca", "xyz", "yzx"]
        assert [one["index"] for one in body["choices"]] == [0, 1, 2, 3]
        assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (6, 12)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_streams_interleave_and_each_choice_has_its_own_finish(served: Served, path):
    body: dict = {"n": 3, "max_tokens": 5, "stream_options": {"include_usage": True}, "stop": ["ca"]}
    if path == CHAT:
        body |= {"messages": [{"role": "user", "content": "abc"}], "ignore_eos": True}
    else:
        body |= {"prompt": "abc"}
    events = await served.events(path, body)
    assert events[-1] == "[DONE]"
    whole = (await served.post(path, {k: v for k, v in body.items() if k != "stream_options"}))[1]
    pieces = _pieces(events)
    assert sorted(pieces) == [0, 1, 2]
    for index, chunks in pieces.items():
        *before, last = chunks
        assert all(chunk["finish_reason"] is None for chunk in before)
        assert last["finish_reason"] == whole["choices"][index]["finish_reason"]
        assert last["stop_reason"] == whole["choices"][index]["stop_reason"]
        if path == CHAT:
            assert before[0]["delta"] == {"role": "assistant", "content": ""}
            assert last["delta"] == {}
            text = "".join(chunk["delta"].get("content", "") for chunk in before)
            assert text == whole["choices"][index]["message"]["content"]
        else:
            assert "".join(chunk["text"] for chunk in chunks) == whole["choices"][index]["text"]
    chunks = [json.loads(event) for event in events[:-1]]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]


async def test_running_usage_grows(served: Served):
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = await served.events(COMPLETIONS, {"prompt": "abc", "max_tokens": 5, "stream_options": options})
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 5


async def test_a_choice_that_stops_leaves_the_engine_before_the_others(served: Served):
    body = {"prompt": ["abc", "xyz"], "max_tokens": 190, "stop": ["c"], "stream": True}
    async with served.session.post(f"{served.url}{COMPLETIONS}", json=body) as response:
        async for line in response.content:
            if b'"finish_reason":"stop"' in line:
                break

        async def is_one_left() -> bool:
            return (await served.state())["running"] == 1

        await until(is_one_left, 1.0)
        await response.read()


async def test_one_failure_fails_the_request_and_ends_the_others(served: Served):
    body = {"prompt": ["abc", "<|fail|>", "xyz"], "max_tokens": 190}
    status, answer = await served.post(COMPLETIONS, body)
    assert (status, answer["error"]["code"]) == (500, "sequence_failed")
    await until(served.is_idle, 1.0)
    assert served.service.client.open_sequences == 0


async def test_one_failure_ends_the_stream_of_all(served: Served):
    """Whether another one's first token was faster or not."""
    body = {"prompt": ["abc", "<|fail|>"], "max_tokens": 190, "stream": True}
    async with served.session.post(f"{served.url}{COMPLETIONS}", json=body) as response:
        text = (await response.read()).decode()
    assert response.status in (200, 500)
    assert json.loads(text.removesuffix("\n\n").split("data: ")[-1])["error"]["code"] == "sequence_failed"
    await until(served.is_idle, 1.0)


async def test_a_client_that_leaves_ends_all_its_choices(served: Served):
    body = {"prompt": "abc", "max_tokens": 190, "n": 8}
    request = asyncio.create_task(served.post(COMPLETIONS, body))
    await until(served.is_busy)
    assert served.service.client.open_sequences == 8
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await until(served.is_idle, 1.0)
    assert served.service.client.open_sequences == 0


async def test_prompt_tokens_count_once_and_only_when_submitted(served: Served):
    registry = served.service.metrics.registry
    labels = {"model_name": "fake", "engine": "0"}

    def counted() -> float:
        return registry.get_sample_value("vllm:prompt_tokens_total", labels) or 0.0

    before = counted()
    await served.post(COMPLETIONS, {"prompt": ["abc", "xy"], "max_tokens": 2, "n": 4})
    assert counted() == before + 5
    await served.post(COMPLETIONS, {"prompt": ["abc", ""], "max_tokens": 2})
    assert counted() == before + 5
