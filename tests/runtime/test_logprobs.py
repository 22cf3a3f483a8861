"""Log probabilities in each form, cut where the text is cut, in streams as in whole answers."""

import json
import math
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from firsttoken_runtime import core
from firsttoken_runtime.server.logprobs import IMPOSSIBLE, LogprobWriter, Record, finite, prompt_logprobs
from firsttoken_runtime.server.token_text import TokenText
from runtime import byte_text, fake_engine
from runtime.serving import Served, serving

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TEXT = TokenText(byte_text.text_model().tokenizer)
A, B, C, D = byte_text.text_model().encode("abcd", add_special_tokens=False)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script()) as running:
        yield running


def _joined(events: list[str]) -> dict[str, list]:
    """The lists of all chunks' logprobs, one after the other."""
    whole: dict[str, list] = {}
    for event in events[:-1]:
        logprobs = json.loads(event)["choices"][0]["logprobs"] or {}
        for name, part in logprobs.items():
            whole[name] = whole.get(name, []) + part if isinstance(part, list) else part
    return whole


async def test_what_is_impossible_is_still_a_number():
    assert finite(-math.inf) == IMPOSSIBLE
    assert finite(-1.5) == -1.5


async def test_the_chosen_token_is_named_beside_the_likeliest():
    record = Record(A, fake_engine.scores(A, 2), 7)
    written = LogprobWriter(TEXT, 2).completion([record])
    assert written == {
        "tokens": ["a"],
        "token_logprobs": [-0.75],
        "top_logprobs": [{"b": -0.25, "c": -0.5, "a": -0.75}],
        "text_offset": [7],
    }
    assert list(LogprobWriter(TEXT, 0).completion([record])["top_logprobs"][0]) == ["a"]
    assert LogprobWriter(TEXT, 0, as_ids=True).completion([record])["tokens"] == [f"token_id:{A}"]


async def test_of_two_tokens_with_one_text_the_likelier_is_kept():
    halves = byte_text.text_model().encode("é€", add_special_tokens=False)[:2]
    assert [TEXT.to_text(half) for half in halves] == ["\ufffd", "\ufffd"]
    scores = core.TokenLogprobs(logprob=-1.0, rank=1, top_ids=halves, top_logprobs=[-1.0, -2.0])
    written = LogprobWriter(TEXT, 2).completion([Record(halves[0], scores, 0)])
    assert written["top_logprobs"] == [{"\ufffd": -1.0}]
    chat = LogprobWriter(TEXT, 2).chat([Record(halves[0], scores, 0)])["content"][0]
    assert (chat["token"], chat["bytes"]) == ("\ufffd", [0xC3])


async def test_prompt_logprobs_have_ranks_by_id():
    found = prompt_logprobs([A, B], [None, fake_engine.scores(B, 1)], 1, TEXT)
    assert found == [
        None,
        {
            str(C): {"logprob": -0.25, "rank": 1, "decoded_token": "c"},
            str(B): {"logprob": -0.75, "rank": 3, "decoded_token": "b"},
        },
    ]


async def test_chat_logprobs(served: Served):
    body = {"messages": [{"role": "user", "content": "aé"}], "logprobs": True, "top_logprobs": 3}
    _, answer = await served.post(CHAT, body)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == 4
    assert [one["bytes"] for one in content] == [[97], [0xC3], [0xA9], list(b"<|end|>")]
    assert [top["logprob"] for top in content[0]["top_logprobs"]] == [-0.25, -0.5, -0.75]
    assert _joined(await served.events(CHAT, body))["content"] == content
    plain = (await served.post(CHAT, {"messages": body["messages"]}))[1]
    assert plain["choices"][0]["logprobs"] is None
    bare = (await served.post(CHAT, {"messages": body["messages"], "logprobs": True}))[1]
    assert bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


@pytest.mark.parametrize(
    ("body", "text", "tokens", "offsets"),
    [
        ({"prompt": "abcdef", "stop": ["de"]}, "abc", "abcde", [0, 1, 2, 3, 3]),
        ({"prompt": "ab<|end|>"}, "ab", ["a", "b", "<|end|>"], [0, 1, 2]),
        ({"prompt": "abcdef", "stop": ["cx"], "max_tokens": 3}, "abc", "abc", [0, 1, 2]),
        ({"prompt": "a€", "max_tokens": 5}, "a€a", ["a", "\ufffd", "\ufffd", "\ufffd", "a"], [0, 1, 1, 1, 2]),
    ],
)
async def test_logprobs_are_cut_with_the_text(served: Served, body, text, tokens, offsets):
    body = {"max_tokens": 100, "logprobs": 1} | body
    _, answer = await served.post(COMPLETIONS, body)
    (choice,) = answer["choices"]
    assert choice["text"] == text
    assert choice["logprobs"]["tokens"] == list(tokens)
    assert choice["logprobs"]["text_offset"] == offsets
    assert len(offsets) == answer["usage"]["completion_tokens"]
    assert _joined(await served.events(COMPLETIONS, body)) == choice["logprobs"]


async def test_an_echo_has_the_prompt_and_its_logprobs(served: Served):
    body = {"prompt": "aé", "max_tokens": 2, "echo": True, "logprobs": 2}
    _, answer = await served.post(COMPLETIONS, body)
    (choice,) = answer["choices"]
    assert choice["text"] == "aéa" + "\ufffd"
    logprobs = choice["logprobs"]
    assert logprobs["text_offset"] == [0, 1, 1, 2, 3]
    assert logprobs["token_logprobs"] == [None, -0.75, -0.75, -0.75, -0.75]
    assert logprobs["top_logprobs"][0] is None
    assert _joined(await served.events(COMPLETIONS, body)) == logprobs
    events = await served.events(COMPLETIONS, body)
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) == choice["text"]
    _, plain = await served.post(COMPLETIONS, {"prompt": "aé", "max_tokens": 2, "echo": True})
    assert (plain["choices"][0]["text"], plain["choices"][0]["logprobs"]) == (choice["text"], None)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_an_echo_without_an_answer_scores_the_prompt(served: Served, is_stream):
    body = {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}
    if is_stream:
        events = await served.events(COMPLETIONS, body)
        (first, finish) = [json.loads(event)["choices"][0] for event in events[:-1]]
        assert finish["finish_reason"] == "length"
    else:
        _, answer = await served.post(COMPLETIONS, body)
        (first,) = answer["choices"]
        assert first["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0
    assert first["text"] == "abc"
    assert first["logprobs"]["token_logprobs"] == [None, -0.75, -0.75]


async def test_prompt_logprobs_of_a_request(served: Served):
    _, answer = await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 0, "prompt_logprobs": 1})
    (choice,) = answer["choices"]
    assert choice["text"] == ""
    assert [one and sorted(one) for one in choice["prompt_logprobs"]] == [
        None,
        sorted([str(B), str(C)]),
        sorted([str(C), str(D)]),
    ]
    _, answer = await served.post(
        CHAT, {"messages": [{"role": "user", "content": "abc"}], "prompt_logprobs": 0}
    )
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"] == 4
    assert "prompt_logprobs" not in answer["choices"][0]
