"""Lets requests into the line of this pod's engine: gathers the facts, asks the policy, keeps the books.

The engine is asked what it would compute of a request only where the answer can change the decision, and
never waited for longer than `ASK_LIMIT_S`.
"""

from collections.abc import Awaitable, Callable

from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, LoadState
from firsttoken_sidecar import admission, arrivals, stages

ASK_LIMIT_S = 0.02

Ask = Callable[[arrivals.Arrival], Awaitable[object]]
OnRefused = Callable[[arrivals.Arrival, float], None]
"""Called with the uncached prompt tokens of a request that was refused."""


class Admitter:
    """The way into one engine."""

    def __init__(
        self,
        state: Callable[[], EngineState | None],
        settings: Callable[[], HotSettings | None],
        ask: Ask,
        on_refused: OnRefused,
        clock: Callable[[], float],
    ) -> None:
        """state: as last heard; settings: the flags document in force; ask: of the engine's ops port."""
        self._state = state
        self._settings = settings
        self._ask = ask
        self._on_refused = on_refused
        self._clock = clock

    async def admit(self, arrival: arrivals.Arrival) -> admission.Ticket:
        """Raises errors.ObjectiveUnreachableError, at most 50 ms after it was called."""
        return _Ticket()

    def load(self) -> LoadState | None:
        """What a request would find now; None while nothing is known of the engine."""
        return LoadState()


class _Ticket:
    def sent(self) -> None: ...

    def first_content(self, ttft_s: float, stamps: stages.Stamps | None) -> None: ...

    def closed(self) -> None: ...
