"""The bench's client against a server with a fake engine, and against servers that misbehave."""

import asyncio

import pytest
from aiohttp import web

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import summary, workload
from runtime.fake_engine import FAIL, Script
from runtime.serving import serving


def letters(text: str, output_tokens: int | None = 4, **changes: str) -> workload.Request:
    return workload.Request(tuple(text.encode()), output_tokens, **changes)


async def test_times_lengths_and_group_are_recorded():
    async with serving(Script(token_s=0.03)) as served, bench_client.session() as http:
        name = await bench_client.model_name(http, served.url)
        assert name == "fake"
        record = await bench_client.Client(http, served.url, name).ask(letters("AAA", 5, group="g"))
    assert (record.error, record.group, record.prompt_tokens, record.output_tokens) == ("", "g", 3, 5)
    assert record.ttft_s is not None
    assert record.tpot_s is not None
    assert 0 < record.ttft_s < record.end_s - record.start_s
    assert record.tpot_s == pytest.approx(0.03, rel=0.8)
    assert record.longest_gap_s >= record.tpot_s


async def test_one_token_has_no_pace():
    async with serving() as served, bench_client.session() as http:
        record = await bench_client.Client(http, served.url, "fake").ask(letters("A", 1))
    assert (record.error, record.output_tokens, record.tpot_s) == ("", 1, None)


async def test_a_due_time_counts_from_when_it_was_due():
    async with serving() as served, bench_client.session() as http:
        client = bench_client.Client(http, served.url, "fake")
        client.started_at_s -= 5.0
        record = await client.ask(letters("A"), start_s=2.0)
    assert record.start_s == 2.0
    assert record.ttft_s is not None
    assert record.ttft_s >= 3.0


async def test_a_refusal_and_a_failure_are_errors_of_the_record():
    async with serving() as served, bench_client.session() as http:
        client = bench_client.Client(http, served.url, "fake")
        refused = await client.ask(letters("A", 100_000))
        failed = await client.ask(workload.Request((65, FAIL), 4))
        other = await bench_client.Client(http, served.url, "nobody").ask(letters("A"))
    assert refused.error.startswith("HTTP 400")
    assert failed.error.startswith("HTTP 500")
    assert other.error.startswith("HTTP 404")
    assert {refused.ttft_s, failed.ttft_s, other.ttft_s} == {None}


async def test_a_server_that_is_not_there():
    async with bench_client.session() as http:
        record = await bench_client.Client(http, "http://127.0.0.1:9", "x").ask(letters("A"))
        assert "ClientConnectorError" in record.error
        with pytest.raises(UserError, match="no OpenAI-compatible server"):
            await bench_client.model_name(http, "http://127.0.0.1:9")


async def test_what_the_server_measured_comes_on_demand():
    async with serving(Script(token_s=0.01)) as served, bench_client.session() as http:
        plain = await bench_client.Client(http, served.url, "fake").ask(letters("AAA"))
        record = await bench_client.Client(http, served.url, "fake", wants_timing=True).ask(letters("BBB"))
    assert (plain.error, plain.server_timing, record.error) == ("", None, "")
    assert record.server_timing is not None
    assert record.ttft_s is not None
    assert 0 < record.server_timing.ttft_ms < record.ttft_s * 1e3 + 5
    assert sum(record.server_timing.stages_ms.values()) == pytest.approx(record.server_timing.ttft_ms)


TEXT = b'data: {"choices": [{"text": "a"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 4}}\n\n'
END = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([TEXT, END, USAGE, DONE], ""),
        ([END, USAGE, DONE], ""),  # no text at all: the first token is its end
        ([TEXT, END, USAGE], "without [DONE]"),
        ([TEXT, END, DONE], "no content or no usage"),
        ([USAGE, DONE], "no content or no usage"),
        ([TEXT, USAGE.replace(b"4", b"3"), DONE], "4 tokens were asked for and 3 came"),
        ([TEXT, b'data: {"error": {"message": "the engine died"}}\n\n'], "the engine died"),
        ([b"data: {no\n\n"], "not JSON"),
        ([b": keep-alive\n\n", TEXT, END, USAGE, DONE], ""),
    ],
)
async def test_every_way_a_stream_can_end(events: list[bytes], error: str):
    record = await answered_with(events)
    assert (error in record.error) if error else record.error == ""


TIMING = b'data: {"choices": [], "timing": {"ttft_ms": 3, "stages_ms": {"queue": 1, "write": 2}}}\n\n'


@pytest.mark.parametrize(
    ("timing", "error"),
    [
        (TIMING, ""),
        (b"", "the answer had no timing"),
        (TIMING.replace(b"ttft_ms", b"x"), "a timing that cannot be read"),
        (TIMING.replace(b"1", b"null"), "a timing that cannot be read"),
        (TIMING.replace(b'{"queue": 1, "write": 2}', b"[]"), "a timing that cannot be read"),
    ],
    ids=["whole", "missing", "no TTFT", "a stage is null", "no names"],
)
async def test_a_timing_that_was_asked_for_must_come(timing: bytes, error: str):
    record = await answered_with([TEXT, END, USAGE, timing, DONE], wants_timing=True)
    assert (error in record.error) if error else record.error == ""
    expected = None if error else summary.ServerTiming(3.0, {"queue": 1.0, "write": 2.0})
    assert record.server_timing == expected


async def answered_with(events: list[bytes], **changes: bool) -> summary.Record:
    """By a server that sends just these."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(event)
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with bench_client.session() as http:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return await bench_client.Client(http, url, "x", **changes).ask(letters("A"))
    finally:
        await runner.cleanup()


def test_the_class_is_a_header_and_no_limit_is_null():
    body = bench_client.body("m", letters("AB", None))
    assert (body["prompt"], body["max_tokens"], body["ignore_eos"]) == ([65, 66], None, True)


def test_what_only_we_know_is_sent_where_it_says_something():
    plain = bench_client.body("m", letters("AB"))
    assert not {"cache_salt", "shared_prefix_tokens"} & plain.keys()
    salted = bench_client.body("m", letters("AB", shared_prefix_tokens=2), "tenant")
    assert {name: salted[name] for name in salted.keys() - plain.keys()} == {
        "cache_salt": "tenant",
        "shared_prefix_tokens": 2,
    }


async def test_the_text_is_compared_and_each_piece_is_told():
    async with serving(Script(token_s=0.03)) as served, bench_client.session() as http:
        client = bench_client.Client(http, served.url, "fake")
        times: list[float] = []
        one = await client.ask(letters("AB"), on_content=times.append)
        same, other = await client.ask(letters("AB")), await client.ask(letters("AC"))
    assert one.text_digest == same.text_digest != other.text_digest
    assert len(times) == 4
    assert times == sorted(times)
    assert one.cached_tokens == 0


async def test_a_text_has_the_servers_tokens():
    async with serving() as served, bench_client.session() as http:
        assert await bench_client.tokens_of(http, served.url, "AB") == [65 - 33, 66 - 33]
        with pytest.raises(UserError, match="does not tokenize"):
            await bench_client.tokens_of(http, served.url + "/nowhere", "AB")
