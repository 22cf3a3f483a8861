"""The preStop hook against a socket that behaves like the sidecar's, or is not there."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from firsttoken_api import names
from firsttoken_runtime import drain


class _Sidecar:
    def __init__(self, path: Path, answer: bytes, delay_s: float = 0.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._answer, self._delay_s = answer, delay_s
        self.heard = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            self.heard = connection.recv(64)
            time.sleep(self._delay_s)
            connection.sendall(self._answer)

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


def test_it_blocks_until_the_sidecar_has_drained(tmp_path):
    sidecar = _Sidecar(tmp_path / "drain.sock", b"drained\n", delay_s=0.3)
    began = time.monotonic()
    assert drain.drain(str(tmp_path / "drain.sock")) == "drained"
    assert time.monotonic() - began >= 0.3
    sidecar.close()
    assert sidecar.heard == b"drain\n"


@pytest.mark.parametrize("answer", [b"", b"what?\n"])
def test_a_sidecar_that_breaks_off_does_not_hold_the_pod(tmp_path, answer):
    sidecar = _Sidecar(tmp_path / "drain.sock", answer)
    assert "the sidecar ended the drain with" in drain.drain(str(tmp_path / "drain.sock"))
    sidecar.close()


def test_without_a_sidecar_there_is_nothing_to_do(tmp_path):
    assert "nothing to drain" in drain.drain(str(tmp_path / "none.sock"))
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    assert "nothing to drain" in drain.drain(str(tmp_path / "dead.sock"))


def test_the_socket_is_the_sidecars():
    assert names.DRAIN_SOCKET == drain.DRAIN_SOCKET


def test_the_hook_starts_light_and_exits_zero():
    code = "import sys, runpy; runpy.run_module('firsttoken_runtime.drain', run_name='__main__')\n"
    code += "assert not {'asyncio', 'pydantic', 'torch', 'aiohttp'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("preStop: ")) == (0, True)
