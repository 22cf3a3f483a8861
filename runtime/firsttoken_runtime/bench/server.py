"""`firsttoken serve` as the bench's child, and the ops port of any Firsttoken server."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_api.hot_settings import HotSettings
from firsttoken_runtime.bench import child, exposition

START_LIMIT_S = 600.0
IDLE_POLL_S = 0.05


@dataclass(frozen=True)
class Target:
    """Where a server answers. `ops_url` is empty for a server of another kind."""

    url: str
    ops_url: str = ""
    pid: int | None = None
    command: tuple[str, ...] = ()


@contextlib.asynccontextmanager
async def serving(
    source: str, options: Sequence[str], log: Path, cores: Collection[int] = ()
) -> AsyncIterator[Target]:
    """A server of our own. Raises UserError with its own words when it does not start."""
    command = (
        *(sys.executable, "-m", "firsttoken_runtime", "serve", source),
        *("--port", "0", "--ops-port", "0", *options),
    )
    async with child.running(command, log, cores=cores) as started:
        text = await child.until_said(started, lambda said: "\nTry: " in said, START_LIMIT_S)
        yield target_of(text, started)


def target_of(text: str, started: child.Child) -> Target:
    """From what it says when it is ready."""
    url = _said(text, "URL: ")
    ops_url = _said(text, "Operations: ").partition("/readyz")[0]
    return Target(url, ops_url, started.pid, started.command)


def _said(text: str, name: str) -> str:
    return text.partition(name)[2].partition("\n")[0]


class Ops:
    """State, metrics and flags of one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.generation = 0

    async def state(self) -> dict[str, Any]:
        async with self._session.get(f"{self._url}/state") as response:
            state: dict[str, Any] = await response.json()
        self.generation = max(self.generation, state["flags"]["generation"])
        return state

    async def samples(self) -> dict[str, float]:
        async with self._session.get(f"{self._url}/metrics") as response:
            return exposition.values(await response.text())

    async def put(self, settings: HotSettings) -> tuple[str, ...]:
        """Switch, and check that what was asked for is in force. Raises UserError."""
        body = settings.model_dump_json().encode()
        async with self._session.put(
            f"{self._url}/flags", data=body, headers={"Content-Type": "application/json"}
        ) as response:
            answer = await response.json(content_type=None)
        if response.status != 200:
            message = answer.get("error", {}).get("message", answer) if isinstance(answer, dict) else answer
            raise UserError(f"the server refused the flags of this variant: {message}")
        wanted = {flag.name for flag in settings.flags if flag.enabled}
        enabled = tuple(answer["enabled"])
        if set(enabled) != wanted:
            raise UserError(f"flags {sorted(wanted)} were asked for and {sorted(enabled)} are in force")
        self.generation = settings.generation
        return enabled

    async def until_idle(self, time_limit_s: float) -> None:
        """Nothing runs or waits and every block is free. Raises UserError."""
        deadline_s = time.monotonic() + time_limit_s
        while True:
            state = await self.state()
            busy = {name: state[name] for name in ("running", "waiting") if state[name]}
            if not busy:
                return
            if time.monotonic() > deadline_s:
                raise UserError(f"the server is not idle after {time_limit_s:.0f} s: {busy}")
            await asyncio.sleep(IDLE_POLL_S)
