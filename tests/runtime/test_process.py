"""The server process as a whole, with a fake engine: start, refusals, signals, and what is left behind."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from runtime.fake_engine import Script
from runtime.serving import MODULE

RUN = """
import asyncio, sys
from pathlib import Path
from firsttoken_runtime import core, settings
from firsttoken_runtime.server import process, service
from runtime import byte_text

async def load_text(self, path):
    self.use_text(byte_text.text_model())

service.Service.load_text = load_text
wanted = settings.ServeSettings(
    engine=core.EngineSettings(model_path=sys.argv[1]), served_name="fake", host="127.0.0.1",
    port=int(sys.argv[2]), ops_port=None, initial=None, pins_file=Path(sys.argv[4]) if sys.argv[4:] else None,
)
try:
    asyncio.run(process.serve(wanted, engine_module=sys.argv[3]))
except settings.OptionError as error:
    sys.exit(f"{error.reason} | {error}")
print("torch" in sys.modules)
"""


async def _start(script: Script, port: int = 0, pins_file: Path | None = None) -> asyncio.subprocess.Process:
    path = ":".join(part for part in sys.path if part)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, script.settings().model_path, str(port), MODULE),
        *([] if pins_file is None else [str(pins_file)]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
    )


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(") ")[2][0] != "Z"


async def _until(process: asyncio.subprocess.Process, start: str) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if line.startswith(start):
            return line
    raise AssertionError(f"ended without {start!r}")


async def test_it_says_where_it_serves_and_ends_in_order():
    process = await _start(Script())
    url = (await _until(process, "URL: ")).removeprefix("URL: ").strip()
    assert url.startswith("http://127.0.0.1:")
    assert "curl " in await _until(process, "Try: ")
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0, err
    assert out.decode().strip() == "False", "the server process imported torch"
    assert time.monotonic() - began < 4, "an idle connection must not hold up the end"
    writer.close()
    await writer.wait_closed()


async def test_open_requests_end_before_the_server_does():
    process = await _start(Script(token_s=0.02))
    port = int((await _until(process, "URL: ")).strip().rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"prompt": "abcd", "max_tokens": 60, "stream": true}'
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    assert b"200" in await reader.readline()
    process.send_signal(signal.SIGTERM)
    rest = await asyncio.wait_for(reader.read(), 10)
    assert b"data: [DONE]" in rest
    await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (Script(load_failure="NotEnoughMemory"), "NotEnoughMemory | --max-model-len: no, because"),
        (Script(load_failure="UnsupportedArchitecture"), "UnsupportedArchitecture | SOURCE: no, because"),
        (
            Script(exit_code=5),
            "EngineFailed | the engine process ended with exit code 5 while it loaded the model",
        ),
    ],
)
async def test_a_failed_load_is_one_line(script, said):
    process = await _start(script)
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert err.decode().strip() == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[5]", "entry 0 is neither a text, a list nor an object"),
        ('["%s"]' % ("x" * 300), "entry 0: the prompt has 300 tokens"),
    ],
)
async def test_wrong_pins_end_the_start_with_their_entry(tmp_path, content, said):
    file = tmp_path / "pins.json"
    file.write_text(content)
    process = await _start(Script(), pins_file=file)
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert err.decode().startswith("EngineFailed | --cache-pins: ")
    assert said in err.decode()


async def test_pins_do_not_hold_up_the_start(tmp_path):
    file = tmp_path / "pins.json"
    file.write_text('["abc<|wait|>", [1, 2]]')
    process = await _start(Script(wait_s=1.0), pins_file=file)
    await _until(process, "Try: ")
    process.send_signal(signal.SIGTERM)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0, err


async def test_a_taken_port_is_named_before_anything_is_loaded():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = await _start(Script(load_s=30), port)
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert f"--port: cannot listen on 127.0.0.1:{port}: address already in use" in err.decode()
    server.close()
    await server.wait_closed()


async def test_the_engine_ends_when_the_server_is_killed():
    process = await _start(Script())
    await _until(process, "URL: ")
    children = _children(process.pid)
    assert len(children) == 1
    process.kill()
    await process.communicate()
    for _ in range(100):
        if not _is_running(children[0]):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the engine outlived its server")
