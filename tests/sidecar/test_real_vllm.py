"""Our sidecar in front of a real vLLM server, started with the arguments that the operator renders.

Skipped unless FIRSTTOKEN_VLLM_PYTHON names the Python of an environment with vLLM and FIRSTTOKEN_VLLM_MODEL a
folder of safetensors (`firsttoken bench peers` makes both, below the cache). Takes a few minutes, most of it
vLLM's start. FIRSTTOKEN_VLLM_RECORD=1 keeps what the server said as the answers of `fake_vllm`.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from builders import observed as build
from firsttoken_api import names
from firsttoken_api.hot_settings import ClassSettings, EffectiveFlag, HotSettings, Objective
from firsttoken_api.state import Phase
from firsttoken_operator import vllm
from firsttoken_sidecar import engine_vllm
from sidecar import fake_vllm, fakes

PYTHON, MODEL = os.environ.get("FIRSTTOKEN_VLLM_PYTHON"), os.environ.get("FIRSTTOKEN_VLLM_MODEL")
pytestmark = pytest.mark.skipif(
    not (PYTHON and MODEL),
    reason="a real vLLM: set FIRSTTOKEN_VLLM_PYTHON to the Python of an environment with vLLM and "
    "FIRSTTOKEN_VLLM_MODEL to a folder of safetensors",
)
START_LIMIT_S = 300.0
SERVICE = build.service(
    model={"source": "pvc://models/folder"},
    runtime={
        "engine": "vllm",
        "image": "example/vllm",
        "device": "cpu",
        "dtype": "bfloat16",
        "maxModelLen": 2048,
        "maxNumSeqs": 4,
        "maxNumBatchedTokens": 512,
    },
    resources={"cpu": "1", "memory": "4Gi"},
    optimizations=[{"name": "chunked-prefill", "mode": "Forced", "params": {"chunkTokens": "256"}}],
)


def record(name: str, content: bytes) -> None:
    """Keeps what vLLM says of itself, without its Python process, its web server and this machine's paths."""
    if not os.environ.get("FIRSTTOKEN_VLLM_RECORD"):
        return
    assert MODEL
    if name.endswith(".prom"):
        kept = (b"vllm:", b"# HELP vllm:", b"# TYPE vllm:")
        content = b"".join(line for line in content.splitlines(keepends=True) if line.startswith(kept))
    fake_vllm.RECORDED.mkdir(exist_ok=True)
    (fake_vllm.RECORDED / name).write_bytes(content.replace(MODEL.encode(), b"/models/folder"))


def settings(generation: int, *flags: EffectiveFlag) -> bytes:
    """Objectives that nobody misses: what is shown here is not admission."""
    classes = (
        ClassSettings(name="urgent", priority=10, ttft_p99_s=600),
        ClassSettings(name="rest", ttft_p99_s=600),
    )
    return (
        HotSettings(
            generation=generation,
            flags=flags,
            objective=Objective(ttft_p95_s=600),
            classes=classes,
            default_class="rest",
        )
        .sealed()
        .to_json()
        .encode()
    )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[fakes.FakeEngine]:
    """The address of a server that has just been started, in the form that `fakes.beside` takes."""
    assert PYTHON
    assert MODEL
    with socket.socket() as probe:
        probe.bind((fakes.LOOPBACK, 0))
        port = probe.getsockname()[1]
    arguments = [
        each.replace(f"--port={names.ENGINE_HTTP_PORT}", f"--port={port}")
        for each in vllm.arguments(SERVICE, MODEL, build.model(), frozenset())
    ]
    environment = os.environ | vllm.environment(SERVICE, threads=1)
    environment |= {"HOME": os.environ["HOME"], "VLLM_TARGET_DEVICE": "cpu"}
    log = tmp_path / "vllm.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(PYTHON, *vllm.COMMAND[1:], *arguments), env=environment, stdout=out, stderr=out
        )
    try:
        yield fakes.FakeEngine(api_port=port, ops_port=port)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()
        print(
            f"\nvLLM {' '.join(arguments)}\n", *log.read_text(errors="replace").splitlines()[-12:], sep="\n"
        )


def chat(text: str, **fields: object) -> dict[str, object]:
    message = {"role": "user", "content": text}
    return {"model": "chat", "messages": [message], "temperature": 0, "stream": True} | fields


async def ask(
    beside: fakes.Beside, body: dict[str, object], headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    async with beside.client.post(beside.url("/v1/chat/completions"), json=body, headers=headers) as response:
        return response.status, await response.read()


def text_of(stream: bytes) -> str:
    assert stream.endswith(b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    return "".join(each["delta"].get("content") or "" for event in events for each in event["choices"])


async def test_chat_readiness_metrics_flags_and_drain(server: fakes.FakeEngine) -> None:
    async with fakes.beside(
        server,
        flags=settings(1),
        is_awaited=False,
        **{
            each["name"].removeprefix("FIRSTTOKEN_"): each["value"]
            for each in vllm.sidecar_environment(SERVICE, frozenset())
        },
    ) as beside:
        state = await beside.until(lambda state: state.engine is not None)
        assert state.engine is not None
        assert state.engine.phase is Phase.LOADING
        async with beside.client.get(beside.ops("/engine/startupz")) as probe:
            assert probe.status == 200, "a load is not killed"
        async with beside.client.get(beside.ops("/readyz")) as probe:
            assert probe.status == 503
            assert "loading" in await probe.text()
        began = asyncio.get_running_loop().time()
        await beside.until(lambda state: state.ready, START_LIMIT_S)
        print(f"ready after {asyncio.get_running_loop().time() - began:.0f} s")
        await keep_the_idle(beside, server)
        await chat_streams(beside)
        await load_is_learned_from(beside, server)
        await a_flag_is_refused(beside)
        await class_and_tenant_are_taken(beside, server)
        await the_drain_is_asked_for(beside)


async def keep_the_idle(beside: fakes.Beside, server: fakes.FakeEngine) -> None:
    state = await beside.state()
    assert state.engine is not None
    print(f"idle: {state.engine.model_dump_json()}")
    async with beside.client.get(server.api_url.with_path("/metrics")) as answer:
        record("idle.prom", await answer.read())
    async with beside.client.get(server.api_url.with_path("/v1/models")) as answer:
        record("models.json", await answer.read())
    assert (state.engine.model, state.engine.max_model_len) == ("chat", 2048)
    assert state.engine.kv.blocks_total > 0
    assert set(state.flags.enabled) >= {"prefix-cache", "chunked-prefill", "priority"}
    assert (state.flags.generation, state.flags.error) == (1, "")


async def chat_streams(beside: fakes.Beside) -> None:
    status, stream = await ask(beside, chat("What is the capital of France?", max_tokens=24))
    record("stream.sse", stream)
    print(f"stream: {status} {stream[:300]!r}")
    assert status == 200
    assert "Paris" in text_of(stream)
    state = await beside.until(lambda state: state.ttft is not None and sum(state.ttft.counts) == 1)
    print(f"ttft: {state.ttft}")
    status, whole = await ask(beside, chat("What is the capital of France?", max_tokens=24, stream=False))
    assert status == 200
    assert "Paris" in json.loads(whole)["choices"][0]["message"]["content"]
    async with beside.client.get(beside.ops("/metrics")) as answer:
        exposition = await answer.text()
    assert "vllm:prefix_cache_queries_total" in exposition
    assert "firsttoken_" in exposition


async def load_is_learned_from(beside: fakes.Beside, server: fakes.FakeEngine) -> None:
    """More requests than slots, with long and short prompts: the step time and what waits are seen."""
    busy = b""
    async with asyncio.TaskGroup() as group:
        for n in range(12):
            prompt = f"{n}. " + "Count the sheep and say how many there are. " * (3 + 13 * (n % 4))
            group.create_task(ask(beside, chat(prompt, max_tokens=60, ignore_eos=True)))
        seen = await beside.until(
            lambda state: state.engine is not None and state.engine.running == 4 and state.engine.waiting, 30
        )
        await asyncio.sleep(3.0)
        async with beside.client.get(server.api_url.with_path("/metrics")) as answer:
            busy = await answer.read()
        record("busy.prom", busy)
        assert seen.engine is not None
        assert seen.engine.backlog_tokens > 0
        assert seen.engine.kv.blocks_used > 0
    state = await beside.state()
    print(f"after load: {state.model_dump_json()}")
    assert state.engine is not None
    assert state.engine.step_time is not None
    assert state.engine.step_time.seconds(256, 4, 1000) > 0
    assert state.engine.prefill_tokens_per_s > 0
    assert state.engine.tpot_p95_s > 0
    assert state.engine.cache.hit_tokens_total["device"] >= 0
    assert (state.engine.max_num_seqs, state.engine.chunk_tokens) == (4, 512)


async def a_flag_is_refused(beside: fakes.Beside) -> None:
    beside.mounts.write_flags(settings(2, EffectiveFlag(name="kv-int8", enabled=True)))
    beside.mounts.annotate("2.1")
    state = await beside.until(lambda state: state.flags.error)
    print(f"refused: {state.flags.error}")
    assert "flags.kv-int8: vLLM was started without it" in state.flags.error
    assert state.ready
    beside.mounts.write_flags(settings(3))
    beside.mounts.annotate("3.1")
    await beside.until(lambda state: state.flags.generation == 3 and not state.flags.error)


async def class_and_tenant_are_taken(beside: fakes.Beside, server: fakes.FakeEngine) -> None:
    """vLLM refuses what it does not understand of a body, so an answer says that it took both."""
    headers = {names.HEADER_CLASS: "urgent"}
    status, answer = await ask(beside, chat("Hi", max_tokens=2, stream=False), headers)
    assert status == 200, answer
    async with aiohttp.ClientSession() as session:
        adapter = engine_vllm.VllmEngine(session, server.api_url, ("priority",), 4, 512, lambda: 0.0)
        body = adapter.body_for(json.dumps(chat("Hi", max_tokens=2, stream=False)).encode(), 10, "mobile")
        async with session.post(
            server.api_url.with_path("/v1/chat/completions"),
            data=body,
            headers={"Content-Type": "application/json"},
        ) as response:
            assert response.status == 200, await response.text()


async def the_drain_is_asked_for(beside: fakes.Beside) -> None:
    """The engine container's preStop, with a Python that has nothing of ours."""
    assert PYTHON
    script = vllm.PRE_STOP[2].replace(names.DRAIN_SOCKET, str(beside.drain_socket))
    process = await asyncio.create_subprocess_exec(PYTHON, "-c", script)
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert (await beside.state()).draining
