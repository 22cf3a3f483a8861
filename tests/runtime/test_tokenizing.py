"""/tokenize and /detokenize, as vLLM's clients know them."""

import asyncio
import io
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime import byte_text
from runtime.fake_engine import END
from runtime.serving import Served, serving

TEXT = byte_text.text_model()

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving() as running:
        yield running


async def test_texts_there_and_back(served: Served):
    ids = TEXT.encode("hé!", add_special_tokens=False)
    status, body = await served.post("/tokenize", {"model": "fake", "prompt": "hé!"})
    assert (status, body) == (200, {"count": 4, "max_model_len": 200, "tokens": ids, "token_strs": None})
    _, body = await served.post("/tokenize", {"prompt": "hé!", "return_token_strs": True})
    assert body["token_strs"] == ["h", "\ufffd", "\ufffd", "!"]
    assert await served.post("/detokenize", {"tokens": ids}) == (200, {"prompt": "hé!"})
    assert await served.post("/detokenize", {"tokens": [END]}) == (200, {"prompt": "<|end|>"})
    assert await served.post("/detokenize", {"tokens": []}) == (200, {"prompt": ""})


async def test_a_text_longer_than_the_context_is_counted(served: Served):
    _, body = await served.post("/tokenize", {"prompt": "x" * 5000})
    assert body["count"] == 5000


async def test_chats_go_through_the_template(served: Served):
    messages = [{"role": "user", "content": "ab"}]
    ids = TEXT.encode("ab", add_special_tokens=False)
    _, body = await served.post("/tokenize", {"messages": messages})
    assert body["tokens"] == [*ids, END]
    _, body = await served.post("/tokenize", {"messages": messages, "add_generation_prompt": False})
    assert body["tokens"] == ids


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "x", "return_token_strs": "yes"}, "return_token_strs"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            "/tokenize",
            {
                "messages": [{"role": "user", "content": "x"}],
                "add_generation_prompt": True,
                "continue_final_message": True,
            },
            "continue_final_message",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1, 262]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
async def test_wrong_bodies_are_named(served: Served, path, body, param):
    status, answer = await served.post(path, body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert (await served.post(path, body | {"model": "other"}))[0] in (400, 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", b'{"prompt": "' + b"hello world " * 60_000 + b'"}'),
        ("/detokenize", b'{"tokens": [' + b"7," * 600_000 + b"7]}"),
    ],
)
async def test_others_are_answered_while_a_large_body_is_worked_on(served: Served, path: str, body: bytes):
    """Compared with the work's own time, so that a slow machine does not decide."""
    loop, longest_gap_s = asyncio.get_running_loop(), 0.0

    async def watch() -> None:
        nonlocal longest_gap_s
        while True:
            before_s = loop.time()
            await asyncio.sleep(0.001)
            longest_gap_s = max(longest_gap_s, loop.time() - before_s)

    watching = asyncio.create_task(watch())
    started_s = time.monotonic()
    async with served.session.post(f"{served.url}{path}", data=io.BytesIO(body)) as response:
        await response.read()
    whole_s = time.monotonic() - started_s
    watching.cancel()
    assert longest_gap_s < 0.3 * whole_s, f"{longest_gap_s:.2f} s of {whole_s:.2f} s"
