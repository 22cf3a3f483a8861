"""What the sidecar needs of an engine, as one small Protocol, and the adapter of our own engine.

Everything here talks to the engine's ops port; client traffic goes through `proxy`. Foreign errors are
mapped at this boundary, to the tree below.

    EngineError
    ├── EngineUnreachableError  nothing answered, or not in a way we understand: try again
    └── FlagsRefusedError       the engine named a flag or parameter it will not take: do not try again
"""

import json
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from pydantic import ValidationError
from yarl import URL

from firsttoken_api.state import EngineState, FlagsState, Phase

PROBE_TIMEOUT_S = 3.0
METRICS_TIMEOUT_S = 3.0
FLAGS_TIMEOUT_S = 15.0
"""The engine switches at a step boundary and answers within 10 s."""
LONGEST_REASON = 500


class EngineError(Exception):
    """The engine did not do what it was asked."""


class EngineUnreachableError(EngineError):
    """Nothing answered, or the answer was not one of ours."""


class FlagsRefusedError(EngineError):
    """The engine will not take these settings; the message names the flag or parameter."""


@dataclass(frozen=True)
class Probe:
    """One look at an engine."""

    is_live: bool
    """False: loading stalled, or the engine died or hangs; only a restart helps."""
    reason: str
    """Why it is not live; empty while it is."""
    state: EngineState | None
    """None when the server answers but has no state to show."""

    @property
    def is_ready(self) -> bool:
        return self.is_live and self.state is not None and self.state.phase is Phase.READY


class Engine(Protocol):
    """One engine beside this sidecar. Every method may raise EngineUnreachableError."""

    @property
    def api_url(self) -> URL:
        """Origin of the OpenAI API."""
        ...

    async def probe(self) -> Probe: ...

    async def apply_flags(self, document: bytes) -> FlagsState:
        """Puts a `HotSettings` document in force; returns once it is. Raises FlagsRefusedError."""
        ...

    async def metrics(self) -> bytes:
        """The engine's metrics in Prometheus' text format 0.0.4."""
        ...


class FirsttokenEngine:
    """Our own engine. The session is lent: whoever made it closes it."""

    def __init__(self, session: aiohttp.ClientSession, api_url: URL, ops_url: URL) -> None:
        self._session = session
        self._api_url = api_url
        self._ops_url = ops_url

    @property
    def api_url(self) -> URL:
        return self._api_url

    async def probe(self) -> Probe:
        status, body = await self._ask("GET", "/livez", PROBE_TIMEOUT_S)
        is_live = status == 200
        reason = (
            ""
            if is_live
            else _shortened(body.decode(errors="replace").strip() or f"/livez answered {status}")
        )
        status, body = await self._ask("GET", "/state", PROBE_TIMEOUT_S)
        if status != 200:
            return Probe(is_live, reason, None)
        try:
            return Probe(is_live, reason, EngineState.model_validate_json(body))
        except ValidationError as error:
            raise EngineUnreachableError(
                f"/state of the engine is not understood: {_first_line(error)}"
            ) from error

    async def apply_flags(self, document: bytes) -> FlagsState:
        status, body = await self._ask("PUT", "/flags", FLAGS_TIMEOUT_S, document)
        if status == 400:
            raise FlagsRefusedError(_error_message(body))
        if status != 200:
            raise EngineUnreachableError(f"PUT /flags answered {status}: {_error_message(body)}")
        try:
            return FlagsState.model_validate_json(body)
        except ValidationError as error:
            raise EngineUnreachableError(
                f"answer to PUT /flags is not understood: {_first_line(error)}"
            ) from error

    async def metrics(self) -> bytes:
        status, body = await self._ask("GET", "/metrics", METRICS_TIMEOUT_S)
        if status != 200:
            raise EngineUnreachableError(f"/metrics of the engine answered {status}")
        return body

    async def _ask(
        self, method: str, path: str, timeout_s: float, document: bytes | None = None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} if document is not None else {}
        try:
            async with self._session.request(
                method,
                self._ops_url.with_path(path),
                data=document,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise EngineUnreachableError(f"{method} {path} of the engine: {reason}") from error


def _error_message(body: bytes) -> str:
    """The message of an OpenAI error body, else the start of whatever it is."""
    text = body.decode(errors="replace").strip()
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return _shortened(str(message))


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
