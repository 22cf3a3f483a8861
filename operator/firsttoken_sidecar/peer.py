"""One other replica as it was last seen, and whether it is to be asked at all.

A peer that fails is set aside, for twice as long each time in a row, and is back when its `/state` says so.
"""

import asyncio
from dataclasses import dataclass, field

from firsttoken_api.state import LoadState, SidecarState

FRESH_S = 0.1
"""While requests come, a state is not used for longer before it is asked for again."""
STATE_MAX_AGE_S = 8.0
"""Without requests a state is asked for every few seconds; past this age nothing is known."""
FIRST_ASIDE_S = 0.5
LONGEST_ASIDE_S = 15.0
SILENT_S = 10.0
"""A peer that has answered nothing for so long is gone, with the requests that wait for its first byte."""
MARGIN_S = 0.005
"""A request that was sent so shortly before a look may not be in what the look shows."""


@dataclass(eq=False)
class Peer:
    """Another replica. Times are of one monotonic clock, in seconds."""

    name: str
    """Its address."""
    state: SidecarState | None = None
    load: LoadState | None = None
    asked_s: float = -1e9
    """When the last answered look was sent."""
    tried_s: float = -1e9
    heard_s: float | None = None
    aside_until_s: float = 0.0
    failures: int = 0
    is_being_asked: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _sent: dict[int, tuple[float, int]] = field(default_factory=dict)
    """By request, when it was sent and its tokens: those that the last look does not show, in order."""

    @property
    def zone(self) -> str:
        return self.state.zone if self.state is not None else ""

    def is_accepting(self, now: float) -> bool:
        """Whether a request may be sent there. What is not known, is not ready or is ending gets nothing."""
        state = self.state
        return (
            state is not None
            and state.ready
            and not state.draining
            and not state.evaluating
            and now >= self.aside_until_s
            and now - self.asked_s <= STATE_MAX_AGE_S
        )

    def is_due(self, now: float, every_s: float) -> bool:
        """Whether to ask for its state again."""
        return not self.is_being_asked and now >= self.aside_until_s and now - self.tried_s >= every_s

    def seen(self, state: SidecarState, load: LoadState | None, asked_s: float, now: float) -> None:
        """Its state, as the answer to a look sent at `asked_s`."""
        self.state = state
        self.load = load
        self.asked_s = asked_s
        self.heard_s = now
        self.failures = 0
        self.gone.clear()
        shown = [key for key, (sent_s, _) in self._sent.items() if sent_s < asked_s - MARGIN_S]
        for key in shown:
            del self._sent[key]

    def failed(self, now: float) -> None:
        """It did not answer, or failed a request."""
        if self.heard_s is None:
            self.heard_s = now
        if now - self.heard_s >= SILENT_S:
            self.gone.set()
        if now < self.aside_until_s:
            return  # many requests fail at once; that is one failure
        self.aside_until_s = now + min(FIRST_ASIDE_S * 2**self.failures, LONGEST_ASIDE_S)
        self.failures = min(self.failures + 1, 10)

    def sent(self, request: int, tokens: int, now: float) -> None:
        """A request is sent there; no look has shown it yet. `request`: any number that it alone has."""
        self._sent[request] = (now, tokens)

    def answers(self, request: int) -> None:
        """The request waits no more: its answer has begun, or will not."""
        self._sent.pop(request, None)

    def unseen_tokens(self) -> int:
        """Of the requests that wait there and that no look has shown."""
        return sum(tokens for _, tokens in self._sent.values())
