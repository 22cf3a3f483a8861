"""Streams: keep-alives, failures before and after the first byte, merged tokens."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.fake_engine import Script
from runtime.serving import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMPLETIONS = "/v1/completions"
TTFT_COUNT = "vllm:time_to_first_token_seconds_count"
LABELS = {"model_name": "fake", "engine": "0"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(Script(wait_s=0.4), keep_alive_s=0.1) as running:
        yield running


async def test_comments_keep_a_long_prefill_alive(served):
    events = await served.events(COMPLETIONS, {"prompt": "ab<|wait|>", "max_tokens": 2})
    comments = [event for event in events if event.startswith(":")]
    assert len(comments) >= 2
    assert events[: len(comments)] == comments
    chunks = [json.loads(event) for event in events[len(comments) : -1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "ab"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_a_failure_before_the_first_text_has_its_status(served):
    status, body = await served.post(COMPLETIONS, {"prompt": "a<|fail|>", "stream": True})
    assert (status, body["error"]["message"]) == (500, "NaN in the logits")


async def test_a_failure_after_a_comment_is_an_event(served):
    events = await served.events(COMPLETIONS, {"prompt": "a<|fail|><|wait|>"})
    assert events[0].startswith(":")
    assert json.loads(events[-1])["error"]["code"] == "sequence_failed"


async def test_an_answer_without_text_still_has_its_frame(served):
    before = served.service.metrics.registry.get_sample_value(TTFT_COUNT, LABELS)
    body = {"messages": [{"role": "user", "content": "<|end|>"}]}
    events = await served.events("/v1/chat/completions", body)
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {}]
    assert events[-1] == "[DONE]"
    assert served.service.metrics.registry.get_sample_value(TTFT_COUNT, LABELS) == before + 1


async def test_headers(served):
    request = {"prompt": "ab", "stream": True}
    headers = {"X-Request-Id": "mine"}
    url = f"{served.url}{COMPLETIONS}"
    async with served.session.post(url, json=request, headers=headers) as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Request-Id"] == "mine"


@pytest.mark.parametrize("parameters", [{}, {"stream_options": {"include_usage": True}}])
async def test_the_stages_of_the_first_token_on_demand(served, parameters):
    body = {"prompt": "ab", "max_tokens": 2}
    asked = {"X-Firsttoken-Timing": "true"}
    _, whole = await served.post(COMPLETIONS, body, headers=asked)
    assert "timing" not in (await served.post(COMPLETIONS, body))[1]
    request = body | parameters | {"stream": True}
    async with served.session.post(f"{served.url}{COMPLETIONS}", json=request, headers=asked) as response:
        *chunks, last, done = (await response.read()).decode().split("\n\n")[:-1]
    assert done == "data: [DONE]"
    last = json.loads(last.removeprefix("data: "))
    assert last["choices"] == []
    assert ("usage" in last) == bool(parameters)
    assert all("timing" not in chunk for chunk in chunks)
    for timing in (whole["timing"], last["timing"]):
        assert sum(timing["stages_ms"].values()) == pytest.approx(timing["ttft_ms"])
    status, body = await served.post(COMPLETIONS, body, headers={"X-Firsttoken-Timing": "1"})
    assert (status, body["error"]["param"]) == (400, "X-Firsttoken-Timing")


STAMPED = {"X-Firsttoken-Timing": "stamps"}


async def _stamped(served, path, body, headers=STAMPED):
    """The stream without its stamps, and what the stamps say."""
    async with served.session.post(
        f"{served.url}{path}", json=body | {"stream": True}, headers=headers
    ) as one:
        assert one.status == 200, await one.text()
        events = (await one.read()).decode().split("\n\n")[:-1]
    stamps = [event for event in events if event.startswith(": firsttoken-")]
    rest = [event for event in events if event not in stamps and not event.startswith(":")]
    return events, rest, [json.loads(stamp.split(" ", 2)[2]) for stamp in stamps]


def _said(events):
    """What the events say together: two tokens that are there at once come in one."""
    chunks = [json.loads(event) for event in events]
    texts = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        text, reason = texts.get(choice["index"], ("", None))
        texts[choice["index"]] = text + choice["text"], choice["finish_reason"] or reason
    return texts, [chunk["usage"] for chunk in chunks if chunk.get("usage")]


@pytest.mark.parametrize("parameters", [{}, {"stream_options": {"include_usage": True}}, {"n": 2}])
async def test_a_sidecar_gets_stamps_and_the_stream_is_the_same(served, parameters):
    body = {"prompt": "ab", "max_tokens": 2} | parameters
    events, rest, (first, end) = await _stamped(served, COMPLETIONS, body)
    plain = [event for event in await served.events(COMPLETIONS, body) if not event.startswith(":")]
    assert rest[-1] == "data: [DONE]"
    assert _said(event.removeprefix("data: ") for event in rest[:-1]) == _said(plain[:-1])
    place = next(index for index, event in enumerate(events) if event.startswith(": firsttoken-first"))
    assert json.loads(events[place - 1].removeprefix("data: "))["choices"], "right behind text"
    assert events[-2].startswith(": firsttoken-end")
    assert sum(first["stages_ms"].values()) == pytest.approx(first["ttft_ms"])
    assert (first["prompt_tokens"], first["choices"]) == (2, parameters.get("n", 1))
    assert end == {"completion_tokens": 2 * parameters.get("n", 1), "cached_tokens": first["cached_tokens"]}


async def test_an_answer_without_text_has_both_stamps(served):
    body = {"messages": [{"role": "user", "content": "<|end|>"}]}
    events, _, (first, end) = await _stamped(served, "/v1/chat/completions", body)
    assert first["ttft_ms"] > 0
    assert events[-1] == "data: [DONE]"
    assert end["completion_tokens"] >= 0


async def test_a_failure_in_the_middle_has_no_last_stamp(served):
    events, _, stamps = await _stamped(served, COMPLETIONS, {"prompt": "a<|fail|><|wait|>"})
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "sequence_failed"
    assert all("completion_tokens" not in stamp for stamp in stamps)


async def test_a_whole_answer_has_its_stamps_in_a_header(served):
    body = {"prompt": "ab", "max_tokens": 2}
    async with served.session.post(f"{served.url}{COMPLETIONS}", json=body, headers=STAMPED) as response:
        assert "timing" not in await response.json()
        said = json.loads(response.headers["X-Firsttoken-Stamps"])
    assert (said["prompt_tokens"], said["completion_tokens"], said["choices"]) == (2, 2, 1)
    decode_ms = said["stages_ms"].pop("decode")
    assert decode_ms >= 0
    assert sum(said["stages_ms"].values()) == pytest.approx(said["ttft_ms"])
    async with served.session.post(f"{served.url}{COMPLETIONS}", json=body) as response:
        assert "X-Firsttoken-Stamps" not in response.headers


async def test_client_and_sidecar_may_both_ask(served):
    both = {"X-Firsttoken-Timing": "true,stamps"}
    body = {"prompt": "ab", "max_tokens": 2}
    _, rest, stamps = await _stamped(served, COMPLETIONS, body, both)
    assert len(stamps) == 2
    said = json.loads(rest[-2].removeprefix("data: "))["timing"]
    assert sum(said["stages_ms"].values()) == pytest.approx(said["ttft_ms"])
