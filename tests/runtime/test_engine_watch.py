"""The engine's end in every way it can come, and what is not one."""

import asyncio
import json
import os
import signal
import time

from firsttoken_runtime.server import life
from runtime.fake_engine import Script
from runtime.serving import Served, serving

COMPLETIONS = "/v1/completions"


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


async def test_a_broken_reader_is_said_at_once_and_not_taken_for_a_silent_engine():
    async with serving() as served:

        def breaks(_: object) -> None:
            raise ValueError("cannot count")

        served.service.client._on_step = breaks
        status, body = await served.post(COMPLETIONS, {"prompt": "abc"})
        assert status == 503
        assert "engine-receive broke: cannot count" in body["error"]["message"]
        assert await _status(served, "/livez") == 503
