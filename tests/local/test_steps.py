"""Steps: what a person sees, and that nothing hangs or is left behind."""

import io
import os
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from local import steps


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "step.log"


def test_a_step_says_when_it_starts_and_how_long_it_took() -> None:
    out = io.StringIO()
    times = iter([0.0, 1.0, 1.0, 3.5, 3.5])
    report = steps.Report(out, clock=lambda: next(times))
    with report.step("base image"):
        pass
    assert out.getvalue().splitlines() == [
        "[   1.0 s] base image ...",
        "[   3.5 s] base image: done in 2.5 s",
    ]


def test_a_failure_shows_the_end_of_its_own_output_and_the_log(log: Path) -> None:
    processes = steps.Processes()
    processes.run(["echo", "of an earlier step"], log, timeout_s=10)
    with pytest.raises(steps.StepError) as caught:
        processes.run(["sh", "-c", "echo compiling; echo no space left >&2; exit 3"], log, timeout_s=10)
    message = str(caught.value)
    assert "ended with status 3" in message
    assert "no space left" in message
    assert "earlier step" not in message
    assert f"log: {log}" in message


def test_a_missing_program_is_named(log: Path) -> None:
    with pytest.raises(steps.StepError, match="cannot run no-such-program"):
        steps.Processes().run(["no-such-program"], log, timeout_s=10)


def test_a_step_that_takes_too_long_is_ended_with_its_children(log: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; wait"
    started_s = time.monotonic()
    with pytest.raises(steps.StepError, match="took longer than 1 s"):
        steps.Processes().run(["sh", "-c", script], log, timeout_s=1)
    assert time.monotonic() - started_s < 8
    assert is_gone(int(pid_file.read_text()))


def test_accepted_statuses_are_no_failures(log: Path) -> None:
    steps.Processes().run(["sh", "-c", "exit 1"], log, timeout_s=10, accepted=(0, 1))


def test_what_is_fed_arrives(log: Path) -> None:
    def feed(stream: IO[bytes]) -> None:
        stream.write(b"through the pipe\n")

    steps.Processes().run(["cat"], log, timeout_s=10, feed=feed)
    assert "through the pipe" in log.read_text()


def test_a_child_that_stops_reading_is_a_failure(log: Path) -> None:
    def feed(stream: IO[bytes]) -> None:
        stream.write(b"x" * 10_000_000)

    with pytest.raises(steps.StepError, match="status 0"):
        steps.Processes().run(["true"], log, timeout_s=10, feed=feed)


def test_the_first_failure_ends_what_runs_beside_it(log: Path) -> None:
    processes = steps.Processes()

    def fails() -> None:
        time.sleep(0.3)
        processes.run(["false"], log, timeout_s=10)

    started_s = time.monotonic()
    with pytest.raises(steps.StepError, match="false ended with status 1"):
        steps.side_by_side(processes, lambda: processes.run(["sleep", "60"], log, timeout_s=90), fails)
    assert time.monotonic() - started_s < 8


def test_nothing_starts_after_the_end(log: Path) -> None:
    processes = steps.Processes()
    processes.stop()
    with pytest.raises(steps.StepError, match="another step failed"):
        processes.run(["true"], log, timeout_s=10)


def test_the_heartbeat_names_what_is_at_work_and_its_last_line(log: Path) -> None:
    out = io.StringIO()
    report = steps.Report(out)
    log.parent.mkdir()
    log.write_text("go: compiling kubelet\n")
    seen = threading.Event()
    with report.heartbeat(every_s=0.02), report.step("cluster", log):
        seen.wait(0.2)
    assert "still at work: cluster (0 s: go: compiling kubelet)" in out.getvalue()


def is_gone(pid: int, within_s: float = 5) -> bool:
    """True once the process has ended (a zombie has)."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
        time.sleep(0.05)
    return False
