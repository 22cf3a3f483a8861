"""Starts, recognizes and waits for the cluster's daemons.

A daemon is remembered by its process id together with the kernel's start time of that process, so that a
reused id is never taken for it. Its output goes to a log file, and it outlives the command that started it.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster import cgroups, layout
from cluster.errors import ClusterError

POLL_S = 0.1


@dataclass(frozen=True)
class Daemon:
    """What to start: a short name (also of its log), the command line and the file to execute for it."""

    name: str
    argv: tuple[str, ...]
    executable: Path


@dataclass(frozen=True)
class Running:
    """A started daemon: process id and start time in clock ticks since boot."""

    name: str
    pid: int
    start_ticks: int
    log: Path

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


def start_ticks(pid: int) -> int | None:
    """When process `pid` started, in ticks since boot; None when there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(") ")[2].split()  # the name before it may hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def start(daemon: Daemon, where: layout.Layout) -> Running:
    """Starts a daemon in a session and the cgroup of its own and records it under the run folder."""
    log = where.log(daemon.name)
    with log.open("ab") as output:
        process = subprocess.Popen(
            daemon.argv,
            executable=daemon.executable,
            cwd=where.state,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=cgroups.join,
        )
    ticks = start_ticks(process.pid)
    if ticks is None:
        raise ClusterError(daemon.name, f"ended at once with {process.wait(timeout=5)}", log)
    running = Running(daemon.name, process.pid, ticks, log)
    record = {"name": running.name, "pid": running.pid, "start_ticks": ticks, "log": str(log)}
    (_records(where) / f"{daemon.name}.json").write_text(json.dumps(record))
    return running


def stop(where: layout.Layout, running: Running, timeout_s: float = 20) -> None:
    """Asks a daemon to end, waits for it (one that does not is killed) and forgets it."""
    deadline_s = time.monotonic() + timeout_s
    if running.is_alive():
        os.kill(running.pid, signal.SIGTERM)
    while running.is_alive():
        if time.monotonic() > deadline_s:
            kill(running)
        time.sleep(0.02)
    (_records(where) / f"{running.name}.json").unlink()


def kill(running: Running) -> None:
    """Kills a daemon at once, as a crash would."""
    if running.is_alive():
        os.kill(running.pid, signal.SIGKILL)


def recorded(where: layout.Layout) -> list[Running]:
    """Every daemon recorded for this run, alive or not."""
    found = []
    for path in sorted(where.run.glob("daemons/*.json")):
        record = json.loads(path.read_text())
        found.append(Running(record["name"], record["pid"], record["start_ticks"], Path(record["log"])))
    return found


def require_alive(where: layout.Layout) -> None:
    """Raises for the first daemon that has ended: the others would only time out for its lack."""
    for running in recorded(where):
        if not running.is_alive():
            raise ClusterError(running.name, "ended during the start", running.log)


def wait_until(
    where: layout.Layout, awaited: Running, is_ready: Callable[[], bool], timeout_s: float
) -> None:
    """Polls `is_ready`; raises when any daemon ends, or when the time is over, with the log to read."""
    deadline_s = time.monotonic() + timeout_s
    while not is_ready():
        require_alive(where)
        if time.monotonic() > deadline_s:
            raise ClusterError(awaited.name, f"not ready after {timeout_s:g} s", awaited.log)
        time.sleep(POLL_S)


def _records(where: layout.Layout) -> Path:
    folder = where.run / "daemons"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
