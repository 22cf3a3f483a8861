"""The process itself: one real child per scenario."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from firsttoken_api.state import SidecarState
from sidecar import fakes

RSS_LIMIT_KIB = 100 * 1024


@dataclass
class Child:
    process: asyncio.subprocess.Process
    http_port: int
    ops_port: int
    folder: Path

    async def end(self) -> tuple[int, str]:
        _, errors = await asyncio.wait_for(self.process.communicate(), 10)
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


IMPATIENT = """
import runpy
from firsttoken_sidecar import body_memory
body_memory.WAIT_S = 1.0
runpy.run_module("firsttoken_sidecar", run_name="__main__")
"""
"""The process with one wait cut short: bodies that hold each other's memory give up after it."""


@contextlib.asynccontextmanager
async def child(
    engine: fakes.FakeEngine, started_as: Sequence[str] = ("-m", "firsttoken_sidecar"), **changes: str
) -> AsyncIterator[Child]:
    with tempfile.TemporaryDirectory(prefix="ft-") as name:
        folder = Path(name)
        mounts = fakes.Mounts(folder)
        mounts.write_flags(fakes.document())
        settings = {
            "HOST": fakes.LOOPBACK,
            "HTTP_PORT": "0",
            "OPS_PORT": "0",
            "ENGINE_URL": str(engine.api_url),
            "ENGINE_OPS_URL": str(engine.ops_url),
            "FLAGS_FOLDER": str(mounts.flags),
            "POD_INFO_FOLDER": str(mounts.pod),
            "DRAIN_SOCKET": str(folder / "drain.sock"),
            "DEREGISTER_DELAY_S": "0.2",
        } | changes
        environment = os.environ | {f"FIRSTTOKEN_{key}": value for key, value in settings.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *started_as), env=environment, stderr=asyncio.subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            line = ""
            while "listening" not in line:
                line = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
                assert line, "ended before it listened"
            ports = re.findall(r"(?:http|ops)=(\d+)", line)
            yield Child(process, int(ports[0]), int(ports[1]), folder)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def rss_kib(pid: int) -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


async def until_ready(running: Child) -> None:
    async with fakes.session() as client, asyncio.timeout(10):
        while True:
            async with client.get(f"http://{fakes.LOOPBACK}:{running.ops_port}/state") as response:
                if SidecarState.model_validate_json(await response.read()).ready:
                    return
            await asyncio.sleep(0.05)


async def test_sigterm_drains_and_the_stream_ends_normally() -> None:
    async with fakes.engine(tokens=10, token_s=0.1) as engine, child(engine, DRAIN_TIMOUT_S="1") as running:
        await until_ready(running)
        assert rss_kib(running.process.pid) < RSS_LIMIT_KIB
        async with fakes.session() as client:
            url = f"http://{fakes.LOOPBACK}:{running.http_port}/v1/chat/completions"
            async with client.post(url, json={"stream": True}) as response:
                running.process.send_signal(signal.SIGTERM)
                assert await response.read() == engine.sent_bytes()
        code, errors = await running.end()
    assert code == 0
    assert "drained open=0" in errors
    assert "ended" in errors


async def test_memory_stays_small_under_load_and_no_tensors_are_loaded() -> None:
    """Streams side by side, and more large bodies at once than there is memory for."""
    large = json.dumps({"stream": True, "prompt": "x" * 900_000}).encode()
    async with (
        fakes.engine(tokens=20, token_s=0.05) as engine,
        child(engine, ("-c", IMPATIENT)) as running,
    ):
        await until_ready(running)
        async with fakes.session() as client:
            url = f"http://{fakes.LOOPBACK}:{running.http_port}/v1/chat/completions"

            async def ask(body: bytes) -> int:
                async with client.post(url, data=body, headers={"X-Request-Id": str(id(body))}) as response:
                    await response.read()
                    return response.status

            asking = [asyncio.create_task(ask(b'{"stream": true}' + b" " * i)) for i in range(64)]
            asking += [asyncio.create_task(ask(large + b" " * i)) for i in range(48)]
            statuses = await asyncio.gather(*asking)
        assert set(statuses[:64]) == {200}
        assert set(statuses[64:]) <= {200, 503}
        assert rss_kib(running.process.pid) < RSS_LIMIT_KIB
        assert "torch" not in mapped_files(running.process.pid)


async def test_sigterm_after_the_drain_ends_at_once() -> None:
    async with fakes.engine() as engine, child(engine, DEREGISTER_DELAY_S="0.3") as running:
        assert await fakes.ask_to_drain(running.folder / "drain.sock") == b"drained\n"
        running.process.send_signal(signal.SIGTERM)
        started = asyncio.get_running_loop().time()
        code, _ = await running.end()
        assert asyncio.get_running_loop().time() - started < 1.5
    assert code == 0


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
async def test_sigint_or_a_second_sigterm_ends_without_a_drain(signals: list[signal.Signals]) -> None:
    async with fakes.engine() as engine, child(engine, DEREGISTER_DELAY_S="60") as running:
        for number in signals:
            running.process.send_signal(number)
            await asyncio.sleep(0.1)
        code, _ = await running.end()
    assert code == 0


async def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_a_wrong_setting_ends_it_with_one_line() -> None:
    code, _, errors = await run("-m", "firsttoken_sidecar", FIRSTTOKEN_DRAIN_TIMEOUT_S="soon")
    assert code == 2
    assert errors.startswith(
        "firsttoken_sidecar: FIRSTTOKEN_DRAIN_TIMEOUT_S: 'soon' is not a number of seconds"
    )
    assert errors.count("\n") == 1


async def test_nothing_heavy_is_imported() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'kopf', 'kubernetes', 'firsttoken_runtime'}"
    program = f"import sys, firsttoken_sidecar.__main__; print(sorted({heavy} & set(sys.modules)))"
    assert await run("-c", program) == (0, "[]\n", "")


ASKS_WHAT_IS_FROZEN = """
import asyncio, gc, os, signal
from firsttoken_sidecar import __main__, settings

async def main():
    serving = asyncio.create_task(__main__.serve(settings.read(os.environ)))
    while not gc.get_freeze_count():
        await asyncio.sleep(0.05)
    print(gc.get_freeze_count() > 10_000)
    os.kill(os.getpid(), signal.SIGINT)
    await serving

asyncio.run(main())
"""


async def test_what_stays_is_not_looked_through_for_garbage(tmp_path: Path) -> None:
    """A full collection over all modules takes tens of milliseconds, in which no stream goes on."""
    settings = {
        "FIRSTTOKEN_HOST": fakes.LOOPBACK,
        "FIRSTTOKEN_HTTP_PORT": "0",
        "FIRSTTOKEN_OPS_PORT": "0",
        "FIRSTTOKEN_DRAIN_SOCKET": str(tmp_path / "drain.sock"),
    }
    code, out, errors = await run("-c", ASKS_WHAT_IS_FROZEN, **settings)
    assert (code, out) == (0, "True\n"), errors
