"""/v1/score: likelihoods of texts, without generating anything."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime import byte_text, fake_engine
from runtime.serving import Served, serving, until

SCORE = "/v1/score"
A, B, C = byte_text.text_model().encode("abc", add_special_tokens=False)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script()) as running:
        yield running


async def test_scores_of_one_prompt(served: Served):
    status, body = await served.post(SCORE, {"model": "fake", "prompt": "abc"})
    assert status == 200
    (one,) = body["data"]
    assert one == {
        "index": 0,
        "object": "score",
        "token_ids": [A, B, C],
        "tokens": ["a", "b", "c"],
        "logprobs": [None, -0.75, -0.75],
        "ranks": [None, 3, 3],
        "sum": -1.5,
        "count": 2,
    }
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 0)


async def test_many_prompts_of_both_kinds_with_alternatives(served: Served):
    _, body = await served.post(SCORE, {"prompts": ["abc", [B, C], "a"], "top": 2})
    assert [one["token_ids"] for one in body["data"]] == [[A, B, C], [B, C], [A]]
    assert body["data"][1]["top_logprobs"] == [
        None,
        [
            {"token_id": C + 1, "token": "d", "logprob": -0.25},
            {"token_id": C + 2, "token": "e", "logprob": -0.5},
        ],
    ]
    assert (body["data"][2]["sum"], body["data"][2]["count"]) == (0, 0)
    assert body["usage"]["prompt_tokens"] == 6
    await until(served.is_idle)


async def test_a_prompt_may_fill_the_whole_context(served: Served):
    assert (await served.post(SCORE, {"prompt": "x" * 200}))[0] == 200
    status, body = await served.post(SCORE, {"prompts": ["a", "x" * 201]})
    assert (status, body["error"]["param"]) == (400, "prompts[1]")
    assert body["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "prompts": ["b"]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompts": []}, "prompts"),
        ({"prompts": ["a", []]}, "prompts[1]"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": "a", "top": 21}, "top"),
        ({"prompt": "a", "top": True}, "top"),
        ({"text_1": "a", "text_2": "b"}, "text_1"),
    ],
)
async def test_wrong_bodies_are_named(served: Served, body, param):
    status, answer = await served.post(SCORE, body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_one_failure_fails_the_request(served: Served):
    status, body = await served.post(SCORE, {"prompts": ["abc", "<|fail|>"]})
    assert (status, body["error"]["code"]) == (500, "sequence_failed")
    await until(served.is_idle)
    assert served.service.client.open_sequences == 0


async def test_a_score_has_no_first_token(served: Served):
    registry = served.service.metrics.registry
    labels = {"model_name": "fake", "engine": "0"}
    name = "vllm:time_to_first_token_seconds_count"
    before = registry.get_sample_value(name, labels)
    await served.post(SCORE, {"prompt": "abc"})
    assert registry.get_sample_value(name, labels) == before
