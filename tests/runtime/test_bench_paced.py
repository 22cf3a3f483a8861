"""The paced engine: its scheduler by itself, and over HTTP as a client and a sidecar see it."""

import asyncio
import json

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.hot_settings import ClassSettings, HotSettings, Objective
from firsttoken_api.state import EngineState
from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import paced_server, pacing, workload

FAST = pacing.Pace(fixed_s=0.001, per_prefill_token_s=1e-6, per_decode_s=0.0)


def sequence(prompt: bytes = b"x" * 100, output_tokens: int = 3, **changes: object) -> pacing.Simulated:
    keys = pacing.block_keys(prompt, "", 16)
    return pacing.Simulated(pacing.tokens_of(prompt), output_tokens, keys, **changes)  # type: ignore[arg-type]


def run_out(scheduler: pacing.Scheduler) -> tuple[list[pacing.Simulated], float]:
    """(those that ended in order, when the last did)."""
    ended, now = [], 0.0
    while scheduler.has_work:
        step = scheduler.begin(now)
        now += step.duration_s
        ended += [one for one in scheduler.end(step, now) if one.is_done]
    return ended, now


def test_a_prompt_is_computed_in_chunks_and_each_token_is_a_step():
    pace = pacing.Pace(fixed_s=1.0, per_prefill_token_s=0.1, per_decode_s=0.5, chunk_tokens=10)
    scheduler = pacing.Scheduler(pace)
    scheduler.add(sequence(b"x" * 4 * 25, output_tokens=3))
    _, now = run_out(scheduler)
    # Three steps of 10, 10 and 5 tokens give the first token, two more the others.
    assert now == pytest.approx((1 + 1) + (1 + 1) + (1 + 0.5) + 2 * 1.5)


def test_the_urgent_go_first_and_equals_in_their_order():
    scheduler = pacing.Scheduler(pacing.Pace(chunk_tokens=8, max_num_seqs=1))
    late, early, urgent = (
        sequence(b"a" * 40, arrival_s=2.0),
        sequence(b"b" * 40, arrival_s=1.0),
        sequence(b"c" * 40, arrival_s=3.0, priority=5),
    )
    for one in (late, early, urgent):
        scheduler.add(one)
    ended, _ = run_out(scheduler)
    assert ended == [urgent, early, late]


@pytest.mark.parametrize(("tokens", "found"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32)])
def test_whole_blocks_are_found_again_and_one_token_is_left(tokens: int, found: int):
    scheduler = pacing.Scheduler(FAST)
    first, again = sequence(b"abcd" * tokens), sequence(b"abcd" * tokens)
    scheduler.add(first)
    run_out(scheduler)
    scheduler.add(again)
    run_out(scheduler)
    assert (first.cached_tokens, again.cached_tokens) == (0, found)
    assert scheduler.cache.query_tokens == 2 * tokens


def test_the_cache_forgets_the_end_of_what_was_not_used():
    cache = pacing.PrefixCache(4)
    old, new = pacing.block_keys(b"a" * 64 * 3, "", 16), pacing.block_keys(b"b" * 64 * 2, "", 16)
    cache.publish(old)
    cache.publish(new)
    assert (cache.found_blocks(old), cache.found_blocks(new)) == (2, 2)
    assert pacing.block_keys(b"a" * 64, "salt", 16) != old[:1]


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9), st.integers(0, 2)), max_size=20))
def test_everybody_gets_what_they_asked_for(asked: list[tuple[int, int, int]]):
    scheduler = pacing.Scheduler(pacing.Pace(chunk_tokens=37, max_num_seqs=3))
    everyone = [
        sequence(bytes([index]) * length, tokens, priority=priority)
        for index, (length, tokens, priority) in enumerate(asked)
    ]
    for one in everyone:
        scheduler.add(one)
    ended, _ = run_out(scheduler)
    assert len(ended) == len(everyone)
    assert all(one.emitted_tokens == one.output_tokens for one in everyone)
    assert scheduler.backlog_tokens == 0


async def test_the_bench_client_is_answered_and_timed():
    async with paced_server.listening(FAST) as (api, _), bench_client.session() as http:
        url = f"http://127.0.0.1:{api}"
        asking = bench_client.Client(http, url, await bench_client.model_name(http, url), wants_timing=True)
        first = await asking.ask(workload.Request(tuple(range(40)), 5))
        again = await asking.ask(workload.Request(tuple(range(40)), 5))
    assert (first.error, first.output_tokens, first.cached_tokens) == ("", 5, 0)
    assert again.cached_tokens == 32
    assert first.server_timing is not None
    assert sum(first.server_timing.stages_ms.values()) == pytest.approx(first.server_timing.ttft_ms)


async def test_stamps_are_comments_beside_the_content():
    body = {"messages": [{"role": "user", "content": "x" * 50}], "stream": True, "max_tokens": 2}
    headers = {"X-Firsttoken-Timing": "true,stamps"}
    async with paced_server.listening(FAST) as (api, _), aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{api}/v1/chat/completions"
        async with http.post(url, json=body, headers=headers) as answer:
            events = (await answer.read()).split(b"\n\n")
        async with http.post(url, json=body | {"stream": False}, headers=headers) as answer:
            whole = json.loads(answer.headers["X-Firsttoken-Stamps"])
    assert events[1].startswith(b': firsttoken-first {"prompt_tokens":14,')
    assert events[-3].startswith(b': firsttoken-end {"completion_tokens":2,')
    assert events[-2:] == [b"data: [DONE]", b""]
    assert (whole["prompt_tokens"], whole["completion_tokens"]) == (14, 2)


async def test_the_class_of_the_document_decides_the_order_and_what_is_ahead():
    settings = HotSettings(
        generation=3,
        flags=(),
        objective=Objective(ttft_p95_s=1.0),
        classes=(
            ClassSettings(name="batch", ttft_p99_s=9),
            ClassSettings(name="now", priority=7, ttft_p99_s=1),
        ),
    ).sealed()
    slow = pacing.Pace(fixed_s=0.2, chunk_tokens=16)
    async with paced_server.listening(slow) as (api, ops), aiohttp.ClientSession() as http:
        async with http.put(f"http://127.0.0.1:{ops}/flags", data=settings.to_json().encode()) as answer:
            assert answer.status == 200
        long = {"prompt": [1] * 160, "max_tokens": 1}

        async def ask() -> None:
            async with http.post(f"http://127.0.0.1:{api}/v1/completions", json=long) as answer:
                await answer.read()

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0.05)
        ahead = []
        for name in ("batch", "now"):
            async with http.post(
                f"http://127.0.0.1:{ops}/estimate", json=long, headers={"X-Firsttoken-Class": name}
            ) as answer:
                ahead.append((await answer.json())["ahead_tokens"])
        async with http.get(f"http://127.0.0.1:{ops}/state") as answer:
            state = EngineState.model_validate_json(await answer.read())
        asking.cancel()
    assert ahead == [160, 0]
    assert (state.flags.generation, state.running, state.backlog_tokens) == (3, 1, 160)


async def test_a_client_that_leaves_is_not_computed_for():
    slow = pacing.Pace(fixed_s=0.05)
    async with paced_server.listening(slow) as (api, ops), aiohttp.ClientSession() as http:
        body = {"prompt": "x", "max_tokens": 10_000, "stream": True}
        async with http.post(f"http://127.0.0.1:{api}/v1/completions", json=body) as answer:
            await answer.content.readany()
        async with asyncio.timeout(5):
            while True:
                async with http.get(f"http://127.0.0.1:{ops}/state") as state:
                    if (await state.json())["running"] == 0:
                        return
                await asyncio.sleep(0.02)
