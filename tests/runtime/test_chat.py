"""The terminal chat against a server with a fake engine."""

import asyncio
import os
import pty
import signal
import sys

import aiohttp
import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime import chat
from runtime.fake_engine import Script
from runtime.serving import serving, until


async def _talk(url: str, typed: str, *options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "firsttoken_runtime", "chat", url, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(typed.encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_conversation_grows_until_it_is_cleared():
    async with serving() as served:
        status, out, err = await _talk(served.url, "one \n two\n/clear\nthree\n/exit\nnever\n")
        assert (status, err) == (0, "")
        # The fake model says its whole prompt: every message so far.
        assert out.splitlines() == ["one", "oneonetwo", "three"]


async def test_options_are_sent():
    async with serving() as served:
        _, out, _ = await _talk(served.url, "abc\n", "--system", "S", "--max-tokens", "2")
        assert out.strip() == "Sa"


async def test_an_unknown_model_and_a_missing_server_are_one_line():
    async with serving() as served:
        status, _, err = await _talk(served.url, "", "--model", "other")
        assert (status, len(err.splitlines())) == (2, 1)
        assert "--model: 'other' is not one of fake" in err
    status, _, err = await _talk(served.url, "")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "no server answers" in err


async def test_a_broken_answer_is_said():
    async with serving(Script(wait_s=0.3), keep_alive_s=0.1) as served:
        for model, question, said in (
            ("fake", "<|fail|><|wait|>", "broke off"),
            ("other", "x", "answered 404"),
        ):
            messages = [{"role": "user", "content": question}]
            with pytest.raises(UserError, match=said):
                async for _ in chat.deltas(served.session, chat.Wish(served.url), model, messages):
                    pass


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n: x\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\n<p/>",
        b"",
    ],
    ids=["cut off", "not JSON", "no answer"],
)
async def test_a_server_that_goes_away_is_one_line(answer):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(UserError, match="the answer broke off"):
            async for _ in chat.deltas(session, chat.Wish(url), "m", []):
                pass
    server.close()
    await server.wait_closed()


async def test_ctrl_c_stops_an_answer_and_then_leaves():
    async with serving(Script(token_s=0.05)) as served:
        terminal, far_end = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "firsttoken_runtime", "chat", served.url),
            stdin=far_end,
            stdout=far_end,
            stderr=far_end,
            start_new_session=True,
        )
        os.close(far_end)
        await _until_shown(terminal, "/exit leaves")
        os.write(terminal, b"a long answer " * 8 + b"\n")
        await until(served.is_busy)
        process.send_signal(signal.SIGINT)
        await _until_shown(terminal, "[stopped]")
        await until(served.is_idle)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        os.close(terminal)


async def _until_shown(terminal: int, text: str) -> None:
    shown = ""
    async with asyncio.timeout(10):
        while text not in shown:
            shown += (await asyncio.to_thread(os.read, terminal, 4096)).decode(errors="replace")
