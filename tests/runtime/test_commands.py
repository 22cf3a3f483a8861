"""The commands as people type them."""

import subprocess
import sys

import pytest

from firsttoken_api.resolved import ResolveFailure, parse


def _run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "firsttoken_runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/nowhere",), "SOURCE: /nowhere: no such file or folder"),
        (("hf://org/name",), "SOURCE: hf:// is not part of this version"),
        ((".", "--dtype", "int4"), "--dtype: 'int4' is not one of auto, bfloat16"),
        ((".", "--disable", "nothing"), "--disable: 'nothing' is not one of paged-kv"),
        ((".", "--log-format", "xml"), "--log-format: 'xml' is not one of text, json"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_status_two(arguments, said):
    done = _run("serve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_in_a_pod_the_reason_is_left_for_the_operator(tmp_path):
    log = tmp_path / "termination-log"
    log.touch()
    done = _run("serve", "/nowhere", "--termination-log", str(log))
    assert done.returncode == 2
    failure = parse(log.read_text())
    assert isinstance(failure, ResolveFailure)
    assert (failure.reason, failure.message) == ("ModelNotFound", "SOURCE: /nowhere: no such file or folder")


def test_help_names_every_option_and_loads_no_engine():
    code = (
        "import sys\nfrom firsttoken_runtime import commands\n"
        "print(sorted({'torch', 'aiohttp', 'tokenizers', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    text = _run("serve", "--help").stdout
    for option in ("--max-model-len", "--memory-fraction", "--flags-file", "--disable", "--ops-port"):
        assert option in text
