"""A sidecar as the bench's child, beside an engine of its own: `python -m firsttoken_sidecar`, told what a
pod tells it through its environment and the two mounted folders.
"""

import asyncio
import contextlib
import json
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from firsttoken_api import flags, names
from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import ClassSettings, EffectiveFlag, HotSettings, Objective
from firsttoken_runtime.bench import child, exposition, server

LOOPBACK = "127.0.0.1"
START_LIMIT_S = 60.0
FLAGS_LIMIT_S = 30.0
POLL_S = 0.1
PREFIX = "FIRSTTOKEN_"


def settings(
    enabled: Collection[str],
    objective_s: float,
    classes: Sequence[ClassSettings] = (),
    default_class: str = "",
    window_s: float = 60.0,
) -> HotSettings:
    """The document that an operator would write, but for its generation."""
    return HotSettings(
        generation=1,
        flags=tuple(EffectiveFlag(name=name, enabled=name in enabled) for name in flags.BUILT),
        objective=Objective(ttft_p95_s=objective_s, window_s=window_s),
        classes=tuple(classes),
        default_class=default_class,
    )


class Mounts:
    """The two folders that a kubelet would mount."""

    def __init__(self, folder: Path) -> None:
        self.flags = folder / "flags"
        self.pod = folder / "pod"
        self.flags.mkdir()
        self.pod.mkdir()

    def write(self, document: HotSettings) -> None:
        """The document, and the annotation that lets this pod take it."""
        _replace(self.flags / names.FLAGS_KEY, document.to_json())
        annotation = f'{names.ANNOTATION_FLAGS}="{document.generation}.1"\n'
        _replace(self.pod / names.POD_ANNOTATIONS_FILE, annotation)


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


class Sidecar:
    """A running one."""

    def __init__(
        self, started: child.Child, url: str, ops_url: str, mounts: Mounts, http: aiohttp.ClientSession
    ) -> None:
        self.url = url
        self.pid = started.pid
        self.command = started.command
        self._child = started
        self._ops_url = ops_url
        self._mounts = mounts
        self._http = http
        self._generation = 1

    async def state(self) -> dict[str, Any]:
        async with self._http.get(f"{self._ops_url}/state") as response:
            state: dict[str, Any] = await response.json(content_type=None)
            return state

    async def samples(self) -> dict[str, float]:
        """Of its own metrics and its engine's."""
        return exposition.values(await self.metrics())

    async def metrics(self) -> str:
        async with self._http.get(f"{self._ops_url}/metrics") as response:
            return await response.text()

    async def put(self, wanted: HotSettings) -> None:
        """Puts settings in force the way an operator does. Raises UserError."""
        self._generation += 1
        document = wanted.model_copy(update={"generation": self._generation}).sealed()
        self._mounts.write(document)
        await self.until_ready(FLAGS_LIMIT_S)

    async def until_ready(self, time_limit_s: float) -> None:
        """Ready, with the newest settings. Raises UserError with what it says of itself."""
        deadline_s = time.monotonic() + time_limit_s
        said = "nothing"
        while time.monotonic() < deadline_s:
            self._child.check_alive()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
                state = await self.state()
                if state["ready"] and state["flags"]["generation"] == self._generation:
                    return
                said = json.dumps({key: state[key] for key in ("ready", "draining", "flags")})
            await asyncio.sleep(POLL_S)
        raise UserError(f"the sidecar is not ready after {time_limit_s:.0f} s, it says {said}")

    def peak_rss_bytes(self) -> int:
        """The most memory that it has held."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise UserError("this system does not say how much memory a process has held")

    def has_torch(self) -> bool:
        """Whether a library of torch is mapped into it."""
        return "/torch/" in Path(f"/proc/{self.pid}/maps").read_text()


@contextlib.asynccontextmanager
async def running(
    target: server.Target,
    document: HotSettings,
    log: Path,
    http: aiohttp.ClientSession,
    *,
    host: str = LOOPBACK,
    ports: tuple[int, int] = (0, 0),
    cores: Collection[int] = (),
    changes: Mapping[str, str] | None = None,
) -> AsyncIterator[Sidecar]:
    """A sidecar beside `target`, ready. Port 0 takes a free one. Raises UserError with its own words."""
    # A Unix socket's path has room for 108 bytes.
    with tempfile.TemporaryDirectory(prefix="ft-") as name:
        mounts = Mounts(Path(name))
        mounts.write(document.model_copy(update={"generation": 1}).sealed())
        environment = {
            "POD_NAME": f"bench-{host}",
            "HOST": host,
            "HTTP_PORT": str(ports[0]),
            "OPS_PORT": str(ports[1]),
            "ENGINE_URL": target.url,
            "ENGINE_OPS_URL": target.ops_url,
            "FLAGS_FOLDER": str(mounts.flags),
            "POD_INFO_FOLDER": str(mounts.pod),
            "DRAIN_SOCKET": f"{name}/drain.sock",
            "DEREGISTER_DELAY_S": "0",
            "DRAIN_TIMEOUT_S": "5",
            "LOG_FORMAT": "json",
        } | dict(changes or {})
        command = (sys.executable, "-m", "firsttoken_sidecar")
        env = {PREFIX + key: value for key, value in environment.items()}
        async with child.running(command, log, cores=cores, env=env) as started:
            text = await child.until_said(started, lambda said: _listening(said) is not None, START_LIMIT_S)
            said = _listening(text)
            assert said is not None
            sidecar = Sidecar(
                started, f"http://{host}:{said['http']}", f"http://{host}:{said['ops']}", mounts, http
            )
            await sidecar.until_ready(START_LIMIT_S)
            yield sidecar


def _listening(log: str) -> dict[str, Any] | None:
    """Its log line that names the ports; None while there is none."""
    for line in log.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("message") == "listening":
            return entry
    return None


@contextlib.asynccontextmanager
async def paced_engine(
    options: Sequence[str], log: Path, cores: Collection[int] = ()
) -> AsyncIterator[server.Target]:
    """A paced engine as a process of its own."""
    command = (sys.executable, "-m", "firsttoken_runtime.bench.paced_engine", *options)
    async with child.running(command, log, cores=cores) as started:
        text = await child.until_said(started, lambda said: "\nTry: " in said, START_LIMIT_S)
        yield server.target_of(text, started)


def free_ports(hosts: Sequence[str], count: int) -> list[int]:
    """Ports that are free on all of these addresses."""
    found: list[int] = []
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind((hosts[0], 0))
            port = int(first.getsockname()[1])
            try:
                for host in hosts[1:]:
                    stack.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
        if len(found) == count:
            return found
    raise UserError(f"no port is free on all of {', '.join(hosts)}")


def enabled_flags(state: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that an engine has started with."""
    return tuple(state["flags"]["enabled"])
