"""Keeps looking at the engine, so that probes and /state answer at once, also while the engine is busy."""

import asyncio
import logging
from collections.abc import Callable

from firsttoken_api.state import EngineState, FlagsState, Phase
from firsttoken_sidecar import engines, logs

INTERVAL_S = 0.5
SILENCE_LIMIT_S = 15.0
"""An engine that was heard from this recently counts as alive; a busy machine is not a dead engine."""

logger = logging.getLogger(__name__)


class Watch:
    """What was last heard from one engine."""

    def __init__(
        self,
        engine: engines.Engine,
        clock: Callable[[], float],
        on_loading: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_loading` is called at each look that finds the model loading."""
        self._engine = engine
        self._clock = clock
        self._on_loading = on_loading
        self._said_silent_at = 0.0
        self._probe: engines.Probe | None = None
        self._heard_at = 0.0
        self.silence = "the engine has not answered yet"
        """Why the last look failed; empty when it did not."""
        self.starts = 0
        """How often the engine was seen to start or to come back."""
        self.turned_ready = asyncio.Event()
        """Set by the look that finds the engine ready when the one before did not; the reader clears it."""

    @property
    def state(self) -> EngineState | None:
        """None while the engine does not answer."""
        return self._probe.state if self._probe is not None and not self.silence else None

    @property
    def is_answering(self) -> bool:
        return not self.silence

    @property
    def is_ready(self) -> bool:
        return self._probe is not None and not self.silence and self._probe.is_ready

    def why_not_live(self) -> str:
        """Empty while the engine is alive: it answered lately, and said so."""
        if self._probe is None or self._clock() - self._heard_at > SILENCE_LIMIT_S:
            return self.silence or "nothing heard from the engine"
        return self._probe.reason

    async def look(self) -> None:
        """One look."""
        try:
            probe = await self._engine.probe()
        except engines.EngineUnreachableError as error:
            self._say_silent(str(error))
            self.silence = str(error)
            return
        if self.silence or _restarted(self.state, probe.state):
            self.starts += 1
            phase = probe.state.phase if probe.state is not None else "unknown"
            logger.info("engine answers", extra=logs.fields(phase=phase, starts=self.starts))
        if probe.state is not None and probe.state.phase is Phase.LOADING:
            self._on_loading()
        if probe.is_ready and not self.is_ready:
            self.turned_ready.set()
        self.silence = ""
        self._probe = probe
        self._heard_at = self._clock()

    def _say_silent(self, reason: str) -> None:
        if self._probe is None:
            return  # it has not come up yet; readiness says so
        if not self.silence:
            logger.warning("engine stopped answering", extra=logs.fields(reason=reason))
        elif self._clock() - self._said_silent_at >= logs.EVERY_S:
            logger.warning("engine still does not answer", extra=logs.fields(reason=reason))
        else:
            return
        self._said_silent_at = self._clock()

    def note_flags(self, flags: FlagsState) -> None:
        """The engine's answer to new flags is newer than the last look."""
        if self._probe is not None and self._probe.state is not None:
            state = self._probe.state.model_copy(update={"flags": flags})
            self._probe = engines.Probe(self._probe.is_live, self._probe.reason, state)

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_S)


def _restarted(before: EngineState | None, after: EngineState | None) -> bool:
    # A fast restart fits between two looks; what it cannot hide is that the model loads again.
    return (
        before is not None
        and after is not None
        and before.phase is not Phase.LOADING
        and after.phase is Phase.LOADING
    )
