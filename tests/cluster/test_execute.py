import sys
from pathlib import Path

import pytest

from cluster import execute
from cluster.errors import ClusterError

PYTHON = sys.executable


def test_output_input_and_unchecked_failure() -> None:
    echo = [PYTHON, "-c", "print(input())"]
    assert execute.run(echo, timeout_s=10, input_text="hello\n") == "hello\n"
    assert execute.run([PYTHON, "-c", "raise SystemExit(3)"], timeout_s=10, check=False) == ""


def test_failures_say_what_the_program_said() -> None:
    with pytest.raises(ClusterError, match="exited 1: it is broken"):
        execute.run([PYTHON, "-c", "raise SystemExit('it is broken')"], timeout_s=10)
    with pytest.raises(ClusterError, match="took more than"):
        execute.run([PYTHON, "-c", "import time; time.sleep(30)"], timeout_s=0.2)
    with pytest.raises(ClusterError, match="not installed"):
        execute.run(["/no/such/program"], timeout_s=1)


def test_a_logged_failure_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    with pytest.raises(ClusterError) as caught:
        execute.run_logged([PYTHON, "-c", "print('so far'); raise SystemExit(2)"], log=log, timeout_s=10)
    assert caught.value.log == log
    assert "so far" in caught.value.report()
