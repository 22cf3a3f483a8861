import asyncio
import os
import sys
from pathlib import Path

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import child


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_and_what_it_started_are_gone_afterwards(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('inner', inner.pid, flush=True); time.sleep(60)"
    )
    async with child.running((sys.executable, "-c", code), tmp_path / "log") as started:
        text = await child.until_said(started, lambda said: "inner" in said, 20)
        inner = int(text.split()[1])
        assert is_alive(started.pid)
        assert is_alive(inner)
    for _ in range(100):
        if not is_alive(inner):
            break
        await asyncio.sleep(0.02)
    assert not is_alive(started.pid)
    assert not is_alive(inner)


async def test_it_is_pinned_and_gets_its_environment(tmp_path):
    core = min(os.sched_getaffinity(0))
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['WORD'])"
    async with child.running(
        (sys.executable, "-c", code), tmp_path / "log", cores=(core,), env={"WORD": "said"}
    ) as started:
        assert await started.process.wait() == 0
    assert started.tail() == f"[{core}] said"


async def test_its_last_words_are_in_the_error(tmp_path):
    code = "import sys; print('no such model'); sys.exit(2)"
    async with child.running((sys.executable, "-c", code), tmp_path / "log") as started:
        with pytest.raises(UserError, match=r"status 2(.|\n)*no such model"):
            await child.until_said(started, lambda said: "ready" in said, 20)


async def test_it_is_not_waited_for_for_ever(tmp_path):
    async with child.running(
        (sys.executable, "-c", "import time; time.sleep(60)"), tmp_path / "log"
    ) as started:
        with pytest.raises(UserError, match="not ready"):
            await child.until_said(started, lambda said: False, 0.1)


async def test_processor_time_of_a_process_and_its_children():
    assert child.cpu_seconds(os.getpid()) > 0
    assert child.cpu_seconds(2**22 + 1) == 0.0


async def test_it_ends_with_a_bench_that_is_killed(tmp_path):
    code = (
        "import asyncio, pathlib, sys\n"
        "from firsttoken_runtime.bench import child\n"
        "async def main():\n"
        "    command = (sys.executable, '-c', 'import time; print(\"up\", flush=True); time.sleep(60)')\n"
        "    async with child.running(command, pathlib.Path(sys.argv[1])) as started:\n"
        "        await child.until_said(started, lambda said: 'up' in said, 20)\n"
        "        print(started.pid, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    bench = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, str(tmp_path / "inner")), stdout=asyncio.subprocess.PIPE
    )
    assert bench.stdout is not None
    pid = int(await bench.stdout.readline())
    assert is_alive(pid)
    bench.kill()
    await bench.wait()
    for _ in range(200):
        if not is_alive(pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it is still there")
