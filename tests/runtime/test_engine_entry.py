"""The engine process ends with its server, however the server ended."""

import subprocess
import sys

import msgspec

from firsttoken_runtime.server import engine_entry
from runtime.fake_engine import Script
from runtime.serving import MODULE


def _process() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", engine_entry.__name__], stdin=subprocess.PIPE)


def test_without_a_launch_it_ends(monkeypatch):
    process = _process()
    process.stdin.close()
    assert process.wait(20) == engine_entry.EXIT_ORPHANED


def test_a_closed_pipe_ends_it_while_it_works(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", ":".join(part for part in sys.path if part))
    process = _process()
    launch = engine_entry.Launch(
        module=MODULE,
        settings=Script(load_s=600).settings(),
        initial_settings_json=None,
        to_engine_address=f"ipc://{tmp_path}/to",
        from_engine_address=f"ipc://{tmp_path}/from",
    )
    process.stdin.write(msgspec.json.encode(launch) + b"\n")
    process.stdin.flush()
    process.stdin.close()
    assert process.wait(20) == engine_entry.EXIT_ORPHANED
