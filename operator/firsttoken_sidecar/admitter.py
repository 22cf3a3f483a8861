"""Lets requests into the line of this pod's engine: gathers the facts, asks the desk, keeps it informed.

The engine is asked what it would compute of a request only where the answer can change the decision, and
never waited for longer than `ASK_LIMIT_S`. While nothing limits (no flags document yet) or nothing is known
of the engine's speed, everybody is let in, and still counted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from firsttoken_api import errors, names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, LoadState
from firsttoken_sidecar import (
    admission,
    admission_counts,
    arrivals,
    backlog,
    classes,
    desk,
    engines,
    inspection,
    logs,
    objectives,
    seen_prefixes,
    stages,
)

ASK_LIMIT_S = 0.02
PRIORITY_FLAG = "priority"
"""While the engine has it in force, it takes requests in order of class."""

Ask = Callable[[bytes, Mapping[str, str], float], Awaitable[bytes | None]]
"""Body, headers and time limit -> the engine's answer to `POST /estimate`; None: it cannot say."""

logger = logging.getLogger(__name__)


class RefusedError(errors.ObjectiveUnreachableError):
    """A refusal, with what it was decided by."""

    def __init__(
        self, message: str, retry_after_s: int, estimate: admission.Estimate, uncached_tokens: int
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.estimate = estimate
        self.uncached_tokens = uncached_tokens


class _Answer(msgspec.Struct):
    """What the engine says of one request. Unknown keys are ignored."""

    prompt_tokens: int
    cached_tokens: int


_DECODER = msgspec.json.Decoder(_Answer)


class Admitter:
    """The way into one engine."""

    def __init__(
        self,
        state: Callable[[], EngineState | None],
        settings: Callable[[], HotSettings | None],
        ask: Ask,
        clock: Callable[[], float],
        counts: admission_counts.AdmissionCounts | None = None,
    ) -> None:
        """state: as last heard; settings: the flags document in force; ask: of the engine's ops port."""
        self._state = state
        self._settings = settings
        self._ask = ask
        self._clock = clock
        self._desk = desk.Desk()
        self._seen = seen_prefixes.SeenPrefixes()
        self._heard: EngineState | None = None
        self._limits_of: HotSettings | None = None
        self._limits = objectives.NONE_YET
        self._limited = logs.Limited(logger)
        self._counts = counts or admission_counts.AdmissionCounts()

    async def admit(self, arrival: arrivals.Arrival) -> admission.Ticket:
        """Raises RefusedError, at most 50 ms after it was called."""
        self._hear()
        request = self._request(arrival)
        if request is None or not self._desk.pace.is_known:
            return self._admitted(arrival, request or self._unlimited(arrival), 0, None)
        seen_tokens = self._seen_tokens(arrival.inspected)
        cached_tokens = int(seen_tokens * self._seen.trust)
        answer = self._desk.decide(request, cached_tokens, self._clock())
        if seen_tokens and self._is_open(request, seen_tokens) and arrival.inspected.body is not None:
            told = await self._told(arrival)
            if told is not None:
                request.prompt_tokens = max(told.prompt_tokens, 1)
                cached_tokens = min(told.cached_tokens, request.prompt_tokens)
            answer = self._desk.decide(request, cached_tokens, self._clock())
        if isinstance(answer, admission.Refused):
            raise self._refusal(request, cached_tokens, answer)
        return self._admitted(arrival, request, cached_tokens, answer.estimate)

    def load(self) -> LoadState | None:
        """What a request would find now; None while nothing is known of the engine."""
        self._hear()
        return self._desk.load(self._clock()) if self._heard is not None else None

    def _hear(self) -> None:
        state = self._state()
        if state is not None and state is not self._heard:
            self._heard = state
            self._desk.hear(state, self._clock())

    def _request(self, arrival: arrivals.Arrival) -> desk.Request | None:
        """None: nothing limits it. A class that nobody knows is the engine's to refuse."""
        settings = self._settings()
        if settings is None:
            return None
        if settings is not self._limits_of:
            self._limits, self._limits_of = objectives.of(settings), settings
        inspected = arrival.inspected
        limit = self._limits.by_class.get(inspected.request_class, self._limits.default)
        if limit.limit_s is None:
            return None
        declared = classes.by_name(settings, inspected.request_class)
        is_ordered = self._heard is not None and PRIORITY_FLAG in self._heard.flags.enabled
        priority = declared.priority if declared is not None and is_ordered else 0
        return self._asking(arrival, priority, limit.limit_s)

    def _unlimited(self, arrival: arrivals.Arrival) -> desk.Request:
        return self._asking(arrival, 0, float("inf"))

    def _asking(self, arrival: arrivals.Arrival, priority: int, limit_s: float) -> desk.Request:
        inspected = arrival.inspected
        return desk.Request(
            tenant=arrival.caller.tenant,
            weight=arrival.caller.weight,
            body_hash=inspected.body_hash,
            request_class=inspected.request_class,
            priority=priority,
            limit_s=limit_s,
            arrival_s=arrival.arrival_s,
            prompt_tokens=max(inspected.estimated_prompt_tokens, 1),
            max_tokens=inspected.max_tokens,
        )

    def _seen_tokens(self, inspected: inspection.Inspected) -> int:
        pieces = self._seen.seen_pieces(inspected.prefix_keys)
        if not pieces or not inspected.prompt_bytes:
            return 0
        share = pieces * inspection.PREFIX_PIECE_BYTES / inspected.prompt_bytes
        return int(inspected.estimated_prompt_tokens * min(share, 1.0))

    def _is_open(self, request: desk.Request, seen_tokens: int) -> bool:
        """Whether it depends on the cache if this request is let in."""
        now = self._clock()
        best = self._desk.decide(request, seen_tokens, now)
        worst = self._desk.decide(request, 0, now)
        return type(best) is not type(worst)

    async def _told(self, arrival: arrivals.Arrival) -> _Answer | None:
        """What the engine says of it; None: not in time."""
        inspected = arrival.inspected
        assert inspected.body is not None
        headers = {
            name: value
            for name, value in (
                (names.HEADER_CLASS, inspected.request_class),
                (names.HEADER_ROUTE, inspected.route),
                (names.HEADER_TENANT, arrival.caller.tenant),
            )
            if value
        }
        self._counts.asked += 1
        try:
            async with asyncio.timeout(ASK_LIMIT_S):
                answer = await self._ask(inspected.body, headers, ASK_LIMIT_S)
            return _DECODER.decode(answer) if answer is not None else None
        except (TimeoutError, engines.EngineUnreachableError, msgspec.MsgspecError) as error:
            self._counts.asked_in_vain += 1
            self._limited.warning(
                "engine did not say what it would compute; decided without", error=type(error).__name__
            )
            return None

    def _refusal(self, request: desk.Request, cached_tokens: int, refused: admission.Refused) -> RefusedError:
        retry_after_s = self._desk.refuse(request, cached_tokens, refused, self._clock())
        self._counts.refused[refused.reason] += 1
        estimate = refused.estimate
        return RefusedError(
            f"{_WHY[refused.reason]} (expected within {estimate.likely_s:.2f} s, "
            f"the limit is {estimate.limit_s:g} s); there is room for it in {retry_after_s} s",
            retry_after_s,
            estimate,
            max(request.prompt_tokens - cached_tokens, 1),
        )

    def _admitted(
        self,
        arrival: arrivals.Arrival,
        request: desk.Request,
        cached_tokens: int,
        estimate: admission.Estimate | None,
    ) -> admission.Ticket:
        seen_tokens = self._seen_tokens(arrival.inspected)
        entry = self._desk.admit(request, cached_tokens, estimate, self._clock())
        return _Ticket(
            self._desk, self._seen, entry, estimate, arrival.inspected.prefix_keys, seen_tokens, self._clock
        )


_WHY = {
    admission.Reason.OBJECTIVE: "the first token would come too late",
    admission.Reason.SHARE: "others wait, and this tenant has more than its share of the line",
    admission.Reason.RESERVED: "the room there is was promised to requests that were refused before",
    admission.Reason.PROMISED: "requests that were let in before would be late for it",
    admission.Reason.YIELDED: "less urgent requests that were let in before would be late for it",
}
assert _WHY.keys() == set(admission.Reason)


class _Ticket:
    """One request that was let in, and the books it is on."""

    def __init__(
        self,
        books: desk.Desk,
        seen: seen_prefixes.SeenPrefixes,
        entry: backlog.Entry,
        estimate: admission.Estimate | None,
        prefix_keys: tuple[bytes, ...],
        seen_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        self.estimate = estimate
        self._desk = books
        self._seen = seen
        self._entry = entry
        self._prefix_keys = prefix_keys
        self._seen_tokens = seen_tokens
        self._clock = clock

    def sent(self) -> None:
        """Nothing more is to be done: it is on the books from its admission on."""

    def first_content(self, ttft_s: float, stamps: stages.Stamps | None) -> None:
        uncached = stamps.uncached_tokens if stamps is not None else None
        self._desk.first_content(self._entry, uncached, self._clock())
        self._seen.note(self._prefix_keys)
        if stamps is not None:
            self._seen.found(self._seen_tokens, stamps.cached_tokens)

    def closed(self, completion_tokens: int | None = None) -> None:
        self._desk.closed(self._entry, completion_tokens, self._clock())
