"""The OpenAI endpoints over a fake engine: shapes, refusals, and an engine that stays alive."""

import asyncio
import io
import json
import re
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from firsttoken_runtime.server.service import TOKENIZER_THREADS
from runtime import byte_text, fake_engine
from runtime.serving import Served, serving, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def _chat(text: str, **parameters: object) -> dict:
    return {"model": "fake", "messages": [{"role": "user", "content": text}], **parameters}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    """One server for all tests that leave it as it was."""
    async with serving(fake_engine.Script(token_s=0.002)) as running:
        yield running


async def test_whole_answers(served: Served):
    status, body = await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 5})
    assert status == 200
    assert body["object"] == "text_completion"
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abcab", "length")
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 5
    status, body = await served.post(CHAT, _chat("hé€🙂!"))
    assert status == 200
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "hé€🙂!"}
    assert choice["finish_reason"] == "stop"


async def test_stream_has_the_order_that_clients_expect(served: Served):
    events = await served.events(CHAT, _chat("hé€🙂!", stream_options={"include_usage": True}))
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert len({(chunk["id"], chunk["created"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    *contents, finish, usage = chunks[1:]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in contents) == "hé€🙂!"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in (chunks[0], *contents))
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 12


async def test_a_stream_joins_to_the_whole_answer(served: Served):
    body = {"prompt": "x€y🙂 and so on", "max_tokens": 27, "stop": ["never"]}
    _, whole = await served.post(COMPLETIONS, body)
    events = await served.events(COMPLETIONS, body)
    chunks = [json.loads(event) for event in events[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]


async def test_a_stop_string_ends_the_answer_and_frees_the_engine(served: Served):
    status, body = await served.post(
        COMPLETIONS, {"prompt": "abcdef", "max_tokens": 150, "stop": ["de", "zz"]}
    )
    assert status == 200
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("abc", "stop", "de")
    assert body["usage"]["completion_tokens"] == 5
    await until(served.is_idle)


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        (CHAT, _chat("x", temperature=3), 400, "temperature", None),
        (CHAT, _chat("x", n=17), 400, "n", None),
        (CHAT, _chat("x", tools=[{"type": "function"}]), 400, "tools[0].function", None),
        (CHAT, _chat("x", top_k=100_000), 400, "top_k", None),
        (CHAT, _chat("x", stop_token_ids=[100_000]), 400, "stop_token_ids", None),
        (CHAT, _chat("x", max_tokens=100_000), 400, "max_tokens", "context_length_exceeded"),
        (CHAT, _chat("x" * 300), 400, "messages", "context_length_exceeded"),
        (CHAT, _chat("x", model="other"), 404, "model", "model_not_found"),
        (CHAT, _chat("", add_generation_prompt=False), 400, "messages", None),
        (CHAT, _chat("x", chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs", None),
        (COMPLETIONS, {"prompt": ""}, 400, "prompt", None),
        (COMPLETIONS, {"prompt": [100_000]}, 400, "prompt", None),
        (COMPLETIONS, {"prompt": ["a", ""]}, 400, "prompt[1]", None),
        (COMPLETIONS, {"prompt": [[1], []]}, 400, "prompt[1]", None),
        (COMPLETIONS, {"prompt": ["a", "x" * 300]}, 400, "prompt[1]", "context_length_exceeded"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", None),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {"262": 1}}, 400, "logit_bias", None),
        (COMPLETIONS, {"prompt": "a", "best_of": 2}, 400, "best_of", None),
        (COMPLETIONS, {}, 400, "prompt", None),
        (COMPLETIONS, [], 400, None, None),
        ("/v1/nothing", {}, 404, None, "unknown_url"),
    ],
)
async def test_a_wrong_request_is_refused_by_name_and_the_next_is_answered(
    served: Served, path, body, status, param, code
):
    got, answer = await served.post(path, body)
    assert got == status, answer
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    assert answer["error"]["param"] == param
    assert answer["error"]["code"] == code
    assert (await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 3}))[0] == 200


async def test_large_body_method_and_header_refusals(served: Served):
    status, body = await served.post(COMPLETIONS, data=io.BytesIO(b"x" * 5_000_000))
    assert (status, body["error"]["code"]) == (413, "request_too_large")
    status, body = await served.post(COMPLETIONS, data=b"not gzip", headers={"Content-Encoding": "gzip"})
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    async with served.session.get(f"{served.ops_url}/metrics") as response:
        metrics = await response.text()
    for refused in (400, 413):
        assert re.search(rf'requests_rejected_total{{.*"{refused}".*}} [1-9]', metrics), metrics
    async with served.session.get(f"{served.url}{CHAT}") as response:
        assert response.status == 405
        assert "error" in await response.json()
    status, body = await served.post(CHAT, _chat("x"), headers={"X-Firsttoken-Class": "batch"})
    assert (status, body["error"]["param"]) == (400, "X-Firsttoken-Class")
    status, body = await served.post(CHAT, _chat("x"), headers={"X-Firsttoken-Route": "intent"})
    assert (status, body["error"]["param"]) == (400, "X-Firsttoken-Route")
    status, body = await served.post(CHAT, _chat("x", model="fake:intent"))
    assert (status, body["error"]["param"]) == (400, "model")


async def test_a_request_larger_than_the_pool_is_refused_at_once():
    async with serving(fake_engine.Script(kv_blocks=2)) as served:
        status, body = await served.post(COMPLETIONS, {"prompt": "x" * 20, "max_tokens": 13})
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        status, body = await served.post(COMPLETIONS, {"prompt": "x" * 20, "max_tokens": None})
        assert (status, body["usage"]["completion_tokens"]) == (200, 12)


async def test_a_failed_sequence_fails_alone(served: Served):
    status, body = await served.post(COMPLETIONS, {"prompt": "a<|fail|>"})
    assert (status, body["error"]["code"]) == (500, "sequence_failed")
    labels = {"model_name": "fake", "engine": "0", "finished_reason": "error"}
    registry = served.service.metrics.registry
    assert registry.get_sample_value("vllm:request_success_total", labels) == 1
    assert (await served.post(COMPLETIONS, {"prompt": "abc"}))[0] == 200


async def test_equal_request_ids_are_two_requests(served: Served):
    headers = {"X-Request-Id": "the-same"}
    answers = await asyncio.gather(
        *(
            served.post(COMPLETIONS, {"prompt": text, "max_tokens": 9}, headers=headers)
            for text in ("abc", "xyz")
        )
    )
    assert [body["choices"][0]["text"] for _, body in answers] == ["abcabcabc", "xyzxyzxyz"]


async def test_too_many_open_requests_are_told_to_come_back():
    async with serving(fake_engine.Script(token_s=0.02), max_open_requests=1) as served:
        first = asyncio.create_task(served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 50}))
        await asyncio.sleep(0.2)
        url = f"{served.url}{COMPLETIONS}"
        async with served.session.post(url, json={"prompt": "abc"}) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (await first)[0] == 200


async def test_requests_that_wait_for_a_tokenizer_thread_are_open_requests():
    async with serving(max_open_requests=3) as served:
        held = threading.Event()
        threads = [asyncio.create_task(served.service.in_thread(held.wait)) for _ in range(TOKENIZER_THREADS)]
        waiting = [asyncio.create_task(served.post(COMPLETIONS, {"prompt": "abc"})) for _ in range(5)]
        refused, open_ = await asyncio.wait(waiting, timeout=0.5)
        assert [task.result()[0] for task in refused] == [429, 429]
        held.set()
        assert [status for status, _ in await asyncio.gather(*open_)] == [200] * 3
        await asyncio.gather(*threads)


async def test_models_health_and_request_ids(served: Served):
    async with served.session.get(f"{served.url}/v1/models") as response:
        card = (await response.json())["data"][0]
        assert (card["id"], card["object"], card["max_model_len"]) == ("fake", "model", 200)
    async with served.session.get(f"{served.url}/v1/models/fake") as response:
        assert (await response.json())["id"] == "fake"
    async with served.session.get(f"{served.url}/v1/models/org/other") as response:
        assert response.status == 404
    headers = {"X-Request-Id": "mine-1"}
    async with served.session.get(f"{served.url}/health", headers=headers) as response:
        assert (response.status, response.headers["X-Request-Id"]) == (200, "mine-1")
    async with served.session.get(f"{served.url}/health") as response:
        assert len(response.headers["X-Request-Id"]) == 32


async def test_without_a_chat_template_chat_is_refused():
    async with serving(text_model=byte_text.text_model(chat_template=None)) as served:
        status, body = await served.post(CHAT, _chat("x"))
        assert status == 400
        assert "no chat template" in body["error"]["message"]


async def test_while_loading_requests_are_503():
    async with serving(fake_engine.Script(load_s=1.5), is_settled=False) as served:
        for path, body in ((CHAT, _chat("x")), (COMPLETIONS, {"prompt": "x"})):
            async with served.session.post(f"{served.url}{path}", json=body) as response:
                assert response.status == 503
                assert "Retry-After" in response.headers
                assert (await response.json())["error"]["code"] == "model_loading"
        async with served.session.get(f"{served.url}/v1/models") as response:
            assert response.status == 503
        await served.service.client.settled.wait()
        assert (await served.post(COMPLETIONS, {"prompt": "x"}))[0] == 200
