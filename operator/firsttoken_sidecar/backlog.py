"""The requests that were let in and have not ended, in the order in which the engine's scheduler takes them.

What the engine reports is half a second old and does not know what is on its way to it. So the sidecar keeps
its own books: a request waits from its admission to its first token, then it holds a slot until it ends. The
engine's report is used for what the books cannot know: work that did not come through this process.
"""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firsttoken_sidecar.demand_rate import Demand

MAX_HEAD_START_S = 30.0
"""As the scheduler's: whoever arrives later than that after a request is never taken before it."""
UNKNOWN_OUTPUT_TOKENS = 128.0
"""Expected of an answer that nobody says anything about; as the scheduler does."""
REPORT_AGE_S = 2.0
"""An engine's report is of before, by its own step and by the time between two looks."""
LEAST_LEFT_SHARE = 0.25
"""An answer that is longer than expected is expected to go on for this part of what it has."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request on the books."""

    tenant: str
    weight: float
    request_class: str
    priority: int
    arrival_s: float
    admitted_s: float
    prompt_tokens: int
    uncached_tokens: int
    max_tokens: int | None
    output_tokens: float
    """Expected."""
    start_by_s: float
    """Its place within its priority, smallest first."""
    expected_s: float
    """Until its first token, from its admission on, before any correction."""
    likely_s: float
    """The same with it."""
    limit_s: float
    cost_s: float
    """Of the engine's time, that it takes."""
    pushed_s: float = 0.0
    """What those that came later and went first have added to that."""
    left_tokens: int = 0
    """Of its prompt, not computed yet, as reckoned."""
    first_content_s: float | None = None
    started_step: float = 0.0


def start_by_s(arrival_s: float, prefill_s: float, output_s: float) -> float:
    """The scheduler's order: arrival plus expected work."""
    return arrival_s + min(prefill_s + output_s, MAX_HEAD_START_S)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the scheduler takes before a request."""

    tokens: int
    requests: int
    in_step: int = 0
    """Others whose prompts the step that runs completes."""
    behind_tokens: int = 0
    """Of those that wait and are taken after it."""
    pushed: tuple[Entry, ...] = ()
    """Those that wait already and would be taken after it."""


class Backlog:
    """All open requests of one engine."""

    def __init__(self) -> None:
        self.waiting: dict[Entry, None] = {}
        self.line: list[Entry] = []
        """Those that wait, in the scheduler's order."""
        self.running: dict[Entry, None] = {}
        self._busy_at_s = float("-inf")
        self.unaccounted_tokens = 0
        """In the engine's line, of requests that are not on these books."""
        self.demand = Demand()
        """How much of the engine's time those that came lately take or would have taken, by priority: while
        more urgent ones are refused, nothing is left for others. Who comes again is counted once."""

    def add(self, entry: Entry) -> None:
        entry.left_tokens = entry.uncached_tokens
        self.waiting[entry] = None
        bisect.insort(self.line, entry, key=_order)

    def started(self, entry: Entry, now: float, step: float) -> None:
        """Its first token is there; the step that now begins is number `step`."""
        if entry not in self.waiting:
            return
        self._leave(entry)
        self._busy_at_s = now
        entry.first_content_s = now
        entry.started_step = step
        self.running[entry] = None

    def close(self, entry: Entry, now: float) -> None:
        """It ended, wherever it was; once more is harmless."""
        self._busy_at_s = now
        if entry in self.waiting:
            self._leave(entry)
        self.running.pop(entry, None)

    def reconcile(self, engine_backlog_tokens: int, now: float) -> None:
        """The engine's count of prompt tokens in its line. It is looked at only where these books have long
        been empty: a report is older than what has just ended here."""
        if self.waiting:
            self._busy_at_s = now
        is_empty = now - self._busy_at_s > REPORT_AGE_S
        self.unaccounted_tokens = engine_backlog_tokens if is_empty else 0

    def ahead(self, priority: int, own_start_by_s: float, given: Mapping[Entry, int]) -> Ahead:
        """Of a request with that place in the line; given: tokens that the step which runs computes."""
        tokens, requests, in_step, behind = self.unaccounted_tokens, 0, 0, 0
        pushed: list[Entry] = []
        for one in self.line:
            left = one.left_tokens - given.get(one, 0)
            if left <= 0:
                in_step += 1
                continue
            if one.priority > priority or (one.priority == priority and one.start_by_s <= own_start_by_s):
                tokens += left
                requests += 1
                continue
            behind += left
            pushed.append(one)
        return Ahead(tokens, requests, in_step, behind, tuple(pushed))

    def steps_until_room(
        self,
        *,
        step: float,
        priority: int,
        requests_ahead: int,
        prompt_tokens: int,
        max_num_seqs: int,
        free_kv_tokens: float,
    ) -> float:
        """Ends of steps until one more request has a slot and room for its prompt, behind so many others.

        step: the number of the one that runs; requests_ahead: with those whose prompts it computes;
        free_kv_tokens: less what those ahead need. Answers of less urgent requests make way.
        """
        held = [one for one in self.running if one.priority >= priority]
        missing_slots = len(held) + requests_ahead + 1 - max_num_seqs if max_num_seqs else 0
        missing_tokens = prompt_tokens - free_kv_tokens
        if missing_tokens > 0 and len(held) < len(self.running):
            missing_tokens -= sum(_held_tokens(one, step) for one in self.running if one.priority < priority)
        if missing_slots <= 0 and missing_tokens <= 0:
            return 0.0
        left = sorted((_steps_left(one, step), _held_tokens(one, step)) for one in held)
        freed_tokens, steps_left = 0.0, 1.0
        for number, (steps_left, tokens_held) in enumerate(left, start=1):
            freed_tokens += tokens_held
            if number >= missing_slots and freed_tokens >= missing_tokens:
                return steps_left
        # Those ahead have to end too: as often as these did.
        return steps_left * max(missing_slots / len(left) if left else 1.0, 1.0)

    def _leave(self, entry: Entry) -> None:
        del self.waiting[entry]
        index = bisect.bisect_left(self.line, _order(entry), key=_order)
        del self.line[self.line.index(entry, index)]


def _order(entry: Entry) -> tuple[int, float]:
    return (-entry.priority, entry.start_by_s)


def work_by_tenant(entries: Iterable[Entry]) -> dict[str, float]:
    """Seconds of the engine's time that wait, by tenant."""
    work: dict[str, float] = {}
    for one in entries:
        work[one.tenant] = work.get(one.tenant, 0.0) + one.cost_s
    return work


def _tokens_made(entry: Entry, step: float) -> float:
    return 1 + max(step - entry.started_step, 0)


def _steps_left(entry: Entry, step: float) -> float:
    made = _tokens_made(entry, step)
    least = LEAST_LEFT_SHARE * made if made >= entry.output_tokens else 1.0
    return max(entry.output_tokens - made, least, 1.0)


def _held_tokens(entry: Entry, step: float) -> float:
    return entry.uncached_tokens + _tokens_made(entry, step)
