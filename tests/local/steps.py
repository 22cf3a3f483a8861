"""Steps of a long set-up: timed lines on the terminal, output in a log, never without a bound on time.

A step that fails names its log and shows its last lines. Steps that do not need each other run side by side;
while they do, a line every 15 seconds says which are still at work.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

Command = list[str | Path]

TAIL_LINES = 25
HEARTBEAT_S = 15.0


class StepError(Exception):
    """A step did not succeed; the message is ready to be shown to a person."""


class Report:
    """The terminal side: one line per event, with the seconds since the start. Safe to use from threads."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._start_s = clock()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[float, Path | None]] = {}
        self.durations_s: dict[str, float] = {}

    def say(self, text: str) -> None:
        with self._lock:
            self._out.write(f"[{self._clock() - self._start_s:6.1f} s] {text}\n")
            self._out.flush()

    @contextmanager
    def step(self, name: str, log: Path | None = None) -> Iterator[None]:
        """Times what happens inside; says so at the start, and at the end with the duration.

        With `log`, the heartbeat shows its last line.
        """
        started_s = self._clock()
        with self._lock:
            self._running[name] = (started_s, log)
        self.say(f"{name} ...")
        try:
            yield
        except BaseException:
            self.say(f"{name}: FAILED after {self._clock() - started_s:.1f} s")
            raise
        finally:
            with self._lock:
                self._running.pop(name, None)
        self.durations_s[name] = self._clock() - started_s
        self.say(f"{name}: done in {self.durations_s[name]:.1f} s")

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start_s

    @contextmanager
    def heartbeat(self, every_s: float = HEARTBEAT_S) -> Iterator[None]:
        """Says from time to time what is still running."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(every_s):
                with self._lock:
                    running = dict(self._running)
                if running:
                    now_s = self._clock()
                    self.say(
                        "still at work: " + ", ".join(_progress(now_s, *each) for each in running.items())
                    )

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _progress(now_s: float, name: str, since: tuple[float, Path | None]) -> str:
    started_s, log = since
    last = tail(log, lines=1).strip() if log is not None and log.exists() else ""
    return f"{name} ({now_s - started_s:.0f} s{': ' + last[:80] if last else ''})"


class Processes:
    """Children of this run, so that none outlives it. Each is the leader of its own process group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self,
        command: Sequence[str | Path],
        log: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        feed: Callable[[IO[bytes]], None] | None = None,
        accepted: Container[int] = (0,),
    ) -> None:
        """Runs `command` with all output appended to `log`. `feed` writes its standard input.

        Raises StepError when the command cannot be started, ends with a status that is not `accepted`, or
        takes longer than `timeout_s`.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        argv = [str(part) for part in command]
        with log.open("ab") as out:
            out.write(f"$ {' '.join(argv)}\n".encode())
            out.flush()
            start_of_output = out.tell()
            try:
                child = self._start(argv, out, env, cwd, piped=feed is not None)
            except OSError as error:
                raise StepError(f"cannot run {argv[0]}: {error.strerror}") from error
            try:
                broken = self._feed(child, feed)
                child.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                raise StepError(
                    self._failure(f"took longer than {timeout_s:.0f} s", argv, log, start_of_output)
                ) from error
            finally:
                self._end(child)
        if child.returncode not in accepted or broken:
            raise StepError(
                self._failure(f"ended with status {child.returncode}", argv, log, start_of_output)
            )

    def stop(self) -> None:
        """Ends every child that still runs; later starts are refused."""
        with self._lock:
            self._stopped = True
            children = list(self._children)
        for child in children:
            self._end(child)

    def _start(
        self, argv: list[str], out: IO[bytes], env: Mapping[str, str] | None, cwd: Path | None, piped: bool
    ) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._stopped:
                raise StepError("stopped, because another step failed")
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
            self._children.add(child)
            return child

    @staticmethod
    def _feed(child: "subprocess.Popen[bytes]", feed: Callable[[IO[bytes]], None] | None) -> bool:
        """True when the child stopped reading before everything was written."""
        if feed is None:
            return False
        assert child.stdin is not None
        try:
            with child.stdin as stream:
                feed(stream)
        except BrokenPipeError:
            return True
        return False

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        if child.poll() is None:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(child.pid, sign)
                    child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    continue
                except ProcessLookupError:
                    pass
                break
        with self._lock:
            self._children.discard(child)

    @staticmethod
    def _failure(what: str, argv: list[str], log: Path, start_of_output: int) -> str:
        return f"{' '.join(argv)[:200]} {what}\n{tail(log, start_of_output)}\nlog: {log}"


def tail(log: Path, start: int = 0, lines: int = TAIL_LINES) -> str:
    """The last lines of a log from byte `start` on, indented."""
    with log.open("rb") as stream:
        stream.seek(start)
        text = stream.read().decode(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def side_by_side(processes: Processes, *tasks: Callable[[], None]) -> None:
    """Runs the tasks in threads. The first failure ends the children of the others and is raised."""
    errors: list[BaseException] = []
    lock = threading.Lock()

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed to the caller below, whatever it is
            with lock:
                errors.append(error)
            processes.stop()

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # the person at the terminal interrupts
        processes.stop()
        raise
    if errors:
        raise errors[0]
