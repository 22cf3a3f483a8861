"""Each request gets its own tokens; clients that leave or do not read cost nobody else anything."""

import asyncio
import json
import socket

import aiohttp
import pytest

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server import metrics, sequence, sequences, stream
from runtime.fake_engine import Script
from runtime.serving import Served, serving, until

COMPLETIONS = "/v1/completions"
PATIENCE_S = 30.0
"""For a busy machine: what is waited for takes a second, and what must not be waited for takes longer."""


async def until_nothing_is_open(served: Served) -> None:
    """Neither here nor in the engine."""

    async def is_nothing_open() -> bool:
        return served.service.client.open_sequences == 0 and await served.is_idle()

    await until(is_nothing_open, PATIENCE_S)


@pytest.fixture
def small_buffers(monkeypatch):
    """Little lies between the server and a client that does not read."""
    run = stream.EventStream.run

    async def run_with_small_buffer(self, *arguments):
        connection = self._request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return await run(self, *arguments)

    monkeypatch.setattr(stream.EventStream, "run", run_with_small_buffer)


def connected(served: Served, body: dict[str, object]) -> socket.socket:
    """A client that asks and then reads nothing."""
    content = json.dumps(body).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))
    raw.sendall(head.encode() + content)
    return raw


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_frees_its_sequence(is_stream):
    async with serving(Script(token_s=0.2)) as served:
        body = {"prompt": "abc", "max_tokens": 190, "stream": is_stream}  # they would take 38 s

        async def ask() -> None:
            async with served.session.post(f"{served.url}{COMPLETIONS}", json=body) as response:
                await response.read()

        request = asyncio.create_task(ask())
        await until(served.is_busy)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await until_nothing_is_open(served)
        text = served.service.metrics.exposition(served.service.state()).decode()
        assert 'finished_reason="abort",model_name="fake"} 1.0' in text


async def test_a_client_that_does_not_read_is_cut_off_and_others_are_not(monkeypatch, small_buffers):
    """The engine is paced: the server keeps up, so that only this client makes its tokens wait."""
    monkeypatch.setattr(sequence, "CLIENT_BUFFER_TOKENS", 50)
    async with serving(Script(max_model_len=10**6, kv_blocks=10**5, token_s=0.01)) as served:
        # Logprobs make each piece long.
        asked = {"prompt": "abc", "max_tokens": 900_000, "stream": True, "logprobs": 20}
        with connected(served, asked):

            async def is_open() -> bool:
                return served.service.client.open_sequences == 1

            await until(is_open, PATIENCE_S)
            status, _ = await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 40})
            assert status == 200
            await until_nothing_is_open(served)


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
        await until_nothing_is_open(served)
        assert (await served.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 3}))[0] == 200


async def test_tokens_of_concurrent_requests_do_not_mix():
    async with serving() as served:
        texts = [f"<{index:03}>" for index in range(30)]
        answers = await asyncio.gather(
            *(served.post(COMPLETIONS, {"prompt": text, "max_tokens": 50}) for text in texts)
        )
        for text, (status, body) in zip(texts, answers, strict=True):
            assert (status, body["choices"][0]["text"]) == (200, text * 10)


async def test_a_client_that_takes_nothing_does_not_stay(monkeypatch, small_buffers):
    """Fewer tokens wait for it than would abort it, but more bytes than sockets hold."""
    monkeypatch.setattr(stream, "STALLED_S", 0.3)
    async with serving(Script(max_model_len=1000, kv_blocks=10**4)) as served:
        with connected(served, {"prompt": "abc", "max_tokens": 900, "logprobs": 20, "stream": True}):

            async def is_open() -> bool:
                return served.service._open_requests == 1

            async def is_gone() -> bool:
                return served.service._open_requests == 0

            await until(is_open, PATIENCE_S)
            await until(is_gone, PATIENCE_S)


def _step() -> core.StepOutput:
    return core.StepOutput(step=1, tokens=[], failures=[], stats=metrics.NOTHING_SEEN)


async def test_what_was_sent_is_unseen_until_a_report_can_have_it():
    sent: list[core.ToEngine] = []
    open_ones = sequences.Sequences(sent.append)
    wanted = [
        sequence.Wanted([1] * tokens, core.SamplingParams(max_tokens=1, temperature=0.0), request_class=name)
        for tokens, name in ((10, "a"), (7, "b"), (5, "a"))
    ]
    with open_ones.submitted(wanted, 0.0) as group:
        assert open_ones.unseen_tokens == {"a": 15, "b": 7}
        open_ones.take(_step())  # it had begun before
        with open_ones.submitted(wanted[:1], 0.0):
            assert open_ones.unseen_tokens == {"a": 25, "b": 7}
            group.leave(group.sequences[1])
            assert open_ones.unseen_tokens == {"a": 25, "b": 0}
            open_ones.take(_step())
            assert open_ones.unseen_tokens == {"a": 10, "b": 0}
        assert open_ones.unseen_tokens == {"a": 0, "b": 0}
    assert open_ones.unseen_tokens == {"a": 0, "b": 0}


@pytest.mark.parametrize(("code", "status"), [("refused", 400), ("not_finite", 500), ("", 500)])
async def test_what_the_engine_can_never_serve_is_the_request_s_fault(code, status):
    open_ = sequences.Sequences(lambda _: None)
    wanted = sequence.Wanted([1, 2], core.SamplingParams(max_tokens=1))
    failure = core.Failure(sequence_id=1, message="too long", code=code)
    with open_.submitted([wanted], 0.0) as group:
        open_.take(core.StepOutput(step=1, tokens=[], failures=[failure], stats=metrics.NOTHING_SEEN))
        with pytest.raises(errors.ApiError, match="too long") as caught:
            group.sequences[0].take()
    assert caught.value.status == status


async def test_what_is_probably_cached_is_not_counted_as_unseen():
    open_ = sequences.Sequences(lambda _: None)
    params = core.SamplingParams(max_tokens=1)
    wanted = [sequence.Wanted([1] * 9, params, expected_uncached_tokens=known) for known in (None, 0, 4)]
    with open_.submitted(wanted, 0.0):
        assert open_.unseen_tokens.total() == 13
        assert open_.longest_prompt_tokens == 9
    assert open_.unseen_tokens.total() == 0
