"""The engine's end in every way it can come, clients that leave or do not read, and hot settings."""

import asyncio
import json
import os
import signal
import socket
import time

import aiohttp
import pytest

from firsttoken_api import flags
from firsttoken_api.hot_settings import EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.server import engine_client, life
from runtime.fake_engine import Script
from runtime.serving import Served, serving, until

COMPLETIONS = "/v1/completions"


def _settings(generation: int, **enabled: bool) -> HotSettings:
    effective = tuple(
        EffectiveFlag(name=name, enabled=enabled.get(name.replace("-", "_"), True)) for name in flags.BUILT
    )
    return HotSettings(generation=generation, flags=effective, objective=Objective(ttft_p95_s=0.5)).sealed()


async def _status(served: Served, path: str) -> int:
    async with served.session.get(f"{served.ops_url}{path}") as response:
        return response.status


async def test_death_ends_every_open_request_and_fails_the_probes():
    async with serving(Script(token_s=0.01, wait_s=0.0)) as served:
        stream = asyncio.create_task(served.events(COMPLETIONS, {"prompt": "abc", "max_tokens": 190}))
        whole = asyncio.create_task(served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 190}))
        await asyncio.sleep(0.3)
        assert await _status(served, "/livez") == 200
        status, body = await served.post(COMPLETIONS, {"prompt": "x<|die|>"})
        assert (status, body["error"]["code"]) == (503, "unavailable")
        events = await asyncio.wait_for(stream, 5)
        assert "the engine process ended with exit code 7" in json.loads(events[-1])["error"]["message"]
        assert "[DONE]" not in events
        assert len(events) > 2
        assert (await asyncio.wait_for(whole, 5))[0] == 503
        assert await _status(served, "/livez") == 503
        assert await _status(served, "/readyz") == 503
        assert (await served.state())["phase"] == "Failed"
        assert (await served.post(COMPLETIONS, {"prompt": "abc"}))[0] == 503


async def test_a_stopped_engine_is_found_by_its_silence_and_killed():
    limits = life.Limits(heartbeat_s=0.8, longest_steps=3)
    async with serving(Script(token_s=0.01), limits=limits) as served:
        stream = asyncio.create_task(served.events(COMPLETIONS, {"prompt": "abc", "max_tokens": 190}))
        await asyncio.sleep(0.3)
        process = served.service.client._process
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        events = await asyncio.wait_for(stream, 10)
        assert "no sign of life" in json.loads(events[-1])["error"]["message"]
        assert time.monotonic() - began < 4
        assert await _status(served, "/livez") == 503
        assert await asyncio.wait_for(process.wait(), 5) == -signal.SIGKILL


async def test_an_idle_engine_is_not_a_silent_one():
    async with serving(limits=life.Limits(heartbeat_s=0.6)) as served:
        await asyncio.sleep(1.5)
        assert await _status(served, "/livez") == 200


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_frees_its_sequence(is_stream):
    async with serving(Script(token_s=0.02)) as served:
        body = {"prompt": "abc", "max_tokens": 190, "stream": is_stream}

        async def ask() -> None:
            async with served.session.post(f"{served.url}{COMPLETIONS}", json=body) as response:
                await response.read()

        request = asyncio.create_task(ask())
        await until(served.is_busy)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await until(served.is_idle, 1.0)
        assert served.service.client.open_sequences == 0
        text = served.service.metrics.exposition(served.service.state()).decode()
        assert 'finished_reason="abort",model_name="fake"} 1.0' in text


async def test_a_client_that_does_not_read_is_cut_off_and_others_are_not(monkeypatch):
    monkeypatch.setattr(engine_client, "CLIENT_BUFFER_TOKENS", 50)
    async with serving(Script(max_model_len=10**6, kv_blocks=10**5, token_s=0.0002)) as served:
        port = int(served.url.rpartition(":")[2])
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", port))
        body = json.dumps({"prompt": "abc", "max_tokens": 900_000, "stream": True}).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)

        async def is_open() -> bool:
            return served.service.client.open_sequences == 1

        async def is_cut() -> bool:
            return served.service.client.open_sequences == 0

        await until(is_open)
        status, _ = await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 40})
        assert status == 200
        await until(is_cut, 20.0)
        await until(served.is_idle)
        raw.close()


async def test_a_storm_of_leaving_clients_leaves_nothing_behind():
    async with serving(Script(token_s=0.002)) as served:

        async def one(index: int) -> None:
            body = {"prompt": "abc", "max_tokens": 150, "stream": index % 2 == 0}
            timeout = aiohttp.ClientTimeout(total=0.05 + 0.01 * (index % 7))
            try:
                async with served.session.post(
                    f"{served.url}{COMPLETIONS}", json=body, timeout=timeout
                ) as response:
                    await response.read()
            except TimeoutError:
                pass

        await asyncio.gather(*(one(index) for index in range(40)))
        await until(served.is_idle)
        assert served.service.client.open_sequences == 0
        assert (await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 3}))[0] == 200


async def test_tokens_of_concurrent_requests_do_not_mix():
    async with serving() as served:
        texts = [f"<{index:03}>" for index in range(30)]
        answers = await asyncio.gather(
            *(served.post(COMPLETIONS, {"prompt": text, "max_tokens": 50}) for text in texts)
        )
        for text, (status, body) in zip(texts, answers, strict=True):
            assert (status, body["choices"][0]["text"]) == (200, text * 10)


async def test_flags_are_switched_and_reported():
    async with serving() as served:
        settings = _settings(3, chunked_prefill=False)
        async with served.session.put(f"{served.ops_url}/flags", data=settings.model_dump_json()) as response:
            assert response.status == 200
            answer = await response.json()
        assert answer["generation"] == 3
        assert answer["hash"] == settings.hash
        assert answer["enabled"] == ["paged-kv", "continuous-batching"]
        assert (await served.state())["flags"] == answer


async def test_flags_that_the_engine_refuses_stay_off_and_are_reported():
    async with serving(Script(flags_error="chunkTokens of chunked-prefill is 3")) as served:
        async with served.session.put(
            f"{served.ops_url}/flags", data=_settings(2).model_dump_json()
        ) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"] == "chunkTokens of chunked-prefill is 3"
        state = await served.state()
        assert state["flags"]["generation"] == 0
        assert "chunkTokens" in state["flags"]["error"]


async def test_a_flags_document_at_start_is_in_force_at_once():
    settings = _settings(7, paged_kv=False)
    async with serving(initial=settings) as served:
        state = await served.state()
        assert (state["flags"]["generation"], state["flags"]["hash"]) == (7, settings.hash)
        assert "paged-kv" not in state["flags"]["enabled"]


async def test_a_switch_that_takes_too_long_is_an_error_and_the_next_one_is_not_confused(monkeypatch):
    monkeypatch.setattr(engine_client, "FLAGS_TIMEOUT_S", 0.3)
    async with serving(Script(flags_s=0.5)) as served:
        for generation in (2, 3):
            async with served.session.put(
                f"{served.ops_url}/flags", data=_settings(generation).model_dump_json()
            ) as response:
                assert response.status == 503

        async def is_switched() -> bool:
            return (await served.state())["flags"]["generation"] == 3

        await until(is_switched)


async def test_a_broken_reader_is_said_at_once_and_not_taken_for_a_silent_engine():
    async with serving() as served:

        def breaks(_: object) -> None:
            raise ValueError("cannot count")

        served.service.client._on_step = breaks
        status, body = await served.post(COMPLETIONS, {"prompt": "abc"})
        assert status == 503
        assert "engine-receive broke: cannot count" in body["error"]["message"]
        assert await _status(served, "/livez") == 503
