"""What the sidecar needs of an engine, as one small Protocol. `engine_firsttoken` and `engine_vllm` have it.

Adapters ask an engine about itself; client traffic goes through `proxy`. Foreign errors are mapped at this
boundary, to the tree below.

    EngineError
    ├── EngineUnreachableError  nothing answered, or not in a way we understand: try again
    └── FlagsRefusedError       the engine named a flag or parameter it will not take: do not try again
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from yarl import URL

from firsttoken_api.state import EngineState, FlagsState, Phase

PROBE_TIMEOUT_S = 3.0
METRICS_TIMEOUT_S = 3.0


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

    async def estimate(self, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        """What is ahead of a request and how much of its prompt is cached, as JSON. None: it cannot say."""
        ...

    def body_for(self, body: bytes, priority: int, tenant: str) -> bytes:
        """A client's body as this engine is to get it. Larger priority: more urgent. tenant: whose cached
        prompts it may share; empty: all are one."""
        ...
