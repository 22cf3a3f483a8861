"""A server process of the bench: started with its output in a file, ended by the pid that was recorded.

A child may be pinned to cores; its own children inherit that.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken_api.errors import UserError

GRACE_S = 20.0
POLL_S = 0.1
# Becomes the command, so that the pid stays. Where the system can, it ends with this process, also when that
# is killed; held to cores, if any are named.
_BECOME = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if sys.argv[1]:
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Child:
    """A running server."""

    process: asyncio.subprocess.Process
    log: Path
    command: tuple[str, ...]

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self, lines: int = 8) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def check_alive(self) -> None:
        """Raises UserError with its last words when it has ended."""
        if self.process.returncode is not None:
            raise UserError(
                f"{self.command[0]} ended with status {self.process.returncode}; "
                f"its log {self.log} ends with:\n{self.tail()}"
            )


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str],
    log: Path,
    *,
    cores: Collection[int] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Child]:
    """From start to end; what was started is gone afterwards, whatever happened."""
    argv = [sys.executable, "-c", _BECOME, ",".join(map(str, sorted(cores))), *command]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | dict(env or {}),
            start_new_session=True,  # Ctrl-C is for the bench, which ends its children in order
        )
    try:
        yield Child(process, log, tuple(command))
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
    # Helpers of its session that outlived it; the session is ours alone.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def until_said(child: Child, is_said: Callable[[str], bool], time_limit_s: float) -> str:
    """The log, once it holds what is waited for. Raises UserError when the child ends or takes too long."""
    deadline_s = time.monotonic() + time_limit_s
    while not is_said(text := child.log.read_text(errors="replace")):
        child.check_alive()
        if time.monotonic() > deadline_s:
            raise UserError(f"{child.command[0]} was not ready in {time_limit_s:.0f} s; see {child.log}")
        await asyncio.sleep(POLL_S)
    return text


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all that descend from it."""
    import psutil

    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for one in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total
