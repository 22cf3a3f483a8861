"""`make lint`, `make unit`, `make e2e` and `make test`: what has to pass."""

import codecs
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from local import environment, release, steps, up
from local.paths import Paths

LINT_TIMEOUT_S = 600.0
UNIT_TIMEOUT_S = 1200.0
ALL_TIMEOUT_S = 3600.0
WORKERS = 3
"""One more than the cores of the machine this is measured on: for a third of their time tests only wait."""
KEEP = "KEEP"
CLOSING = re.compile(r"^=+ .*\b(passed|failed|errors?|no tests ran)\b.* in [0-9.]+s.*=+$")


def lint(where: Paths, report: steps.Report, processes: steps.Processes) -> None:
    """Style, format, types and import rules. Raises StepError with the tool's own words."""
    programs = where.venv / "bin"
    checks: dict[str, steps.Command] = {
        "ruff check": [programs / "ruff", "check", "."],
        "ruff format": [programs / "ruff", "format", "--check", "."],
        "mypy": [programs / "mypy"],
        "import rules": [programs / "lint-imports"],
    }
    for name, command in checks.items():
        with report.step(name):
            processes.run(command, where.steps / "lint.log", LINT_TIMEOUT_S, cwd=where.checkout)


def pytest(where: Paths, arguments: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Runs pytest, showing its output as it comes but for its closing line; (status, closing line).

    Bytecode is kept (git and images leave it out): else each worker, and each server that a test starts,
    compiles everything anew.
    """
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = subprocess.Popen(
        [str(where.python), "-m", "pytest", *arguments],
        cwd=where.checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    alarm = threading.Timer(timeout_s, child.kill)
    alarm.start()
    try:
        closing = show(child.stdout, sys.stdout)
        status = child.wait()
    finally:
        alarm.cancel()
        if child.poll() is None:
            child.kill()
            child.wait()
    if status < 0:
        raise steps.StepError(f"pytest was ended after {timeout_s:.0f} s")
    return status, closing


def show(stream: IO[bytes], out: IO[str]) -> str:
    """Copies `stream` to `out` as it comes, but for pytest's closing line, which is returned.

    Results come letter by letter, so lines are not waited for; only one that may be the closing line is.
    """
    closing = held = ""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := os.read(stream.fileno(), 65536):
        *lines, rest = (held + decoder.decode(chunk)).split("\n")
        for line in lines:
            if CLOSING.match(line):
                closing = line
            else:
                out.write(f"{line}\n")
        held = rest if rest.startswith("=") else ""
        out.write("" if held else rest)
        out.flush()
    out.write(held)
    return closing


def area(where: Paths, name: str) -> str:
    """The scenarios of one area (`flags` for tests/e2e/test_flags.py), or all when `name` is empty.

    Raises StepError naming the areas there are.
    """
    folder = where.checkout / "tests" / "e2e"
    areas = sorted(file.stem.removeprefix("test_") for file in folder.glob("test_*.py"))
    if name and name not in areas:
        raise steps.StepError(f"AREA={name}: one of {', '.join(areas)}")
    return f"tests/e2e/test_{name}.py" if name else "tests/e2e"


def folders(where: Paths) -> list[str]:
    """All folders with tests, the scenarios last: what fails in seconds comes before what takes minutes."""
    tests = where.checkout / "tests"
    names = {file.relative_to(tests).parts[0] for file in tests.rglob("test_*.py")}
    return [f"tests/{name}" for name in sorted(names, key=lambda name: (name == "e2e", name))]


def unit(where: Paths, report: steps.Report, processes: steps.Processes) -> int:
    environment.ensure(where, report, processes)
    # File by file: what a file shares (a server, a loaded model) is made once. The order is that of
    # tests/conftest.py: xdist's own, by the number of tests, begins the longest files last: they have few.
    in_parallel = ["-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]
    status, closing = pytest(where, ["-m", "not e2e", *in_parallel], UNIT_TIMEOUT_S)
    print(closing)
    return status


def soak(where: Paths, minutes: str) -> int:
    """A sidecar under many connections; its own words tell how it went. Raises StepError."""
    if minutes and not re.fullmatch(r"[0-9]+([.][0-9]+)?", minutes):
        raise steps.StepError(f"MINUTES={minutes}: a number")
    command = [str(where.python), "-m", "soak", *([minutes] if minutes else [])]
    path = str(where.checkout / "tests")
    return subprocess.run(command, cwd=where.checkout, env={**os.environ, "PYTHONPATH": path}).returncode


def on_cluster(
    where: Paths, report: steps.Report, processes: steps.Processes, tests: Sequence[str], with_lint: bool
) -> int:
    """Brings everything up, runs `tests`, and takes the cluster down when it was not running before.

    The closing line of pytest comes last, so that whoever reads the end of the output sees the result. With
    KEEP=1 in the environment the cluster stays.
    """
    keep = up.is_running(where, processes) or os.environ.get(KEEP) == "1"
    closing = ""
    try:
        checks = (lambda: lint(where, report, processes)) if with_lint else None
        report.say(f"the model says: {up.up(where, report, processes, then=checks)}")
        status, closing = pytest(where, tests, ALL_TIMEOUT_S)
        if status != 0:
            release.record_state(where, where.steps / "failure.log")
            report.say(f"the cluster's state after the tests: {where.steps / 'failure.log'}")
    finally:
        if not keep:
            up.down(where, report, steps.Processes())
    print(closing, flush=True)
    return status
