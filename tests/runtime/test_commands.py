"""The commands as people type them."""

import subprocess
import sys

import pytest

from firsttoken_api.resolved import ResolveFailure, parse
from firsttoken_runtime import commands


def _run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "firsttoken_runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/nowhere",), "SOURCE: /nowhere: no such file or folder"),
        (("hf://org/name",), "SOURCE: hf:// is not part of this version"),
        ((".", "--dtype", "int4"), "--dtype: 'int4' is not one of auto, bfloat16"),
        ((".", "--prefill-priority", "high"), "--prefill-priority: 'high' is not one of normal, low"),
        ((".", "--disable", "nothing"), "--disable: 'nothing' is not one of paged-kv"),
        ((".", "--log-format", "xml"), "--log-format: 'xml' is not one of text, json"),
        ((".", "--enable", "nothing:a=1"), "--enable: 'nothing' is not one of paged-kv"),
        ((".", "--host-memory", "lots"), "--host-memory: 'lots' is neither auto nor an amount such as 4Gi"),
        ((".", "--host-memory", "1Gi"), "--host-memory: the host tier is off; add --enable kv-tiering"),
        ((".", "--cache-pins", "/nowhere"), "--cache-pins: /nowhere: No such file"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_status_two(arguments, said):
    done = _run("serve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_options_reach_the_engine_s_settings(monkeypatch, tmp_path):
    seen = []

    async def take(wanted):
        seen.append(wanted.engine)

    monkeypatch.setattr("firsttoken_runtime.server.process.serve", take)
    commands.serve(str(tmp_path))
    commands.serve(
        str(tmp_path), prefill_priority="low", batch_invariant=True, block_size=32, kv_blocks="500"
    )
    read = [(s.prefill_priority, s.batch_invariant, s.block_size_tokens, s.kv_blocks) for s in seen]
    assert read == [("normal", False, 16, None), ("low", True, 32, 500)]


def test_options_of_the_cache_reach_their_places(monkeypatch, tmp_path):
    seen = []

    async def take(wanted):
        seen.append(wanted)

    monkeypatch.setattr("firsttoken_runtime.server.process.serve", take)
    commands.serve(str(tmp_path))
    commands.serve(
        str(tmp_path),
        ops_port=9000,
        host_memory="1Gi",
        host_folder=str(tmp_path),
        cache_pins=tmp_path / "pins.json",
        behind_sidecar=True,
        enable=["chunked-prefill:chunkTokens=128"],
    )
    flags_file = tmp_path / "flags.json"
    flags_file.write_text(seen[1].initial.model_dump_json())
    commands.serve(str(tmp_path), flags_file=flags_file)
    plain, full, in_pod = seen
    assert in_pod.is_behind_sidecar, "a pod always has one"
    assert (plain.engine.host_memory_bytes, plain.engine.host_folder) == (None, "")
    assert (plain.pins_file, plain.is_behind_sidecar, plain.initial) == (None, False, None)
    assert (full.engine.host_memory_bytes, full.engine.host_folder) == (2**30, str(tmp_path))
    assert (full.pins_file, full.is_behind_sidecar) == (tmp_path / "pins.json", True)
    assert {one.name: one.params for one in full.initial.flags}["chunked-prefill"] == {"chunkTokens": "128"}


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
    for option in ("--host-memory", "--host-folder", "--cache-pins", "--behind-sidecar", "--enable"):
        assert option in text
    for option in ("--prefill-priority", "--batch-invariant", "--kv-blocks", "--block-size"):
        assert option in text
    for option in ("--max-model-len", "--memory-fraction", "--flags-file", "--disable", "--ops-port"):
        assert option in text
