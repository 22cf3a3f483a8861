"""Which step the engine is in, and what it computes, followed from here. Pure.

A request that comes while a step runs waits for its end, and a step takes as long as many limits allow a
whole queue. When a step ends can be seen: first tokens come out, answers end. Between such moments the steps
are reckoned from their expected time. Each step takes prompts as the engine's scheduler does, so that what is
left of a long prompt is known as well.
"""

from firsttoken_sidecar.backlog import Backlog, Entry
from firsttoken_sidecar.pace import Pace

SAME_STEP_PART = 0.3
"""What is seen this soon after a step ended, as a part of a step, is still of that end."""
LATE_PART = 1.25
"""A step that takes longer than expected by this factor is thought to have ended unseen."""
LEAST_LEFT_PART = 0.1
MOST_UNSEEN_STEPS = 64
LEAST_SHARE_TOKENS = 64
"""As the scheduler's smallest chunk."""


class StepMirror:
    """The step that runs now."""

    def __init__(self, backlog: Backlog, pace: Pace) -> None:
        self._backlog = backlog
        self._pace = pace
        self._started_s: float | None = None
        """None: the engine is idle."""
        self._length_s = 0.0
        self.number = 0
        self.given: dict[Entry, int] = {}
        """Tokens of prompts that it computes."""

    def wake(self, now: float) -> None:
        """A request was let in: an idle engine begins a step with it."""
        self._follow(now)
        if self._started_s is None:
            self._begin(now)

    def seen(self, now: float) -> None:
        """Something came out: a step has just ended."""
        self._follow(now)
        if self._started_s is None or now - self._started_s < SAME_STEP_PART * self._length_s:
            # The same end, seen a little later than it was reckoned; what came out of it is on the books now.
            self._begin(now)
            return
        self._end()
        self._begin(now)

    def rest_s(self, now: float) -> float:
        """Of the step that runs."""
        self._follow(now)
        if self._started_s is None:
            return 0.0
        return max(self._length_s - (now - self._started_s), LEAST_LEFT_PART * self._length_s)

    def _follow(self, now: float) -> None:
        """Steps whose end nobody saw."""
        if self._started_s is None:
            return
        for _ in range(MOST_UNSEEN_STEPS):
            if now - self._started_s < LATE_PART * self._length_s:
                return
            end_s = self._started_s + self._length_s
            self._end()
            self._begin(end_s)
            if self._started_s is None or self._length_s <= 0:
                return
        self._begin(now)

    def _end(self) -> None:
        self.number += 1
        for entry, tokens in self.given.items():
            entry.left_tokens = max(entry.left_tokens - tokens, 1)  # at least its first token is to come

    def _begin(self, now: float) -> None:
        pace, line = self._pace, self._backlog.line
        self.given = {}
        if pace.step_time is None or not (line or self._backlog.running):
            self._started_s = None
            return
        self._started_s = now
        budget = max(pace.chunk_tokens, 1)
        share = max(budget // 2, LEAST_SHARE_TOKENS) if len(line) > 1 else budget
        slots = pace.max_num_seqs - len(self._backlog.running) if pace.max_num_seqs else len(line)
        most = min(pace.max_prefill_batch or len(line), max(slots, 0))
        for entry in line[:most]:
            if budget <= 0:
                break
            if entry.admitted_s > now:
                continue
            self.given[entry] = min(entry.left_tokens, share, budget)
            budget -= self.given[entry]
        for entry, tokens in self.given.items():
            extra = min(entry.left_tokens - tokens, budget)
            self.given[entry] += extra
            budget -= extra
        self._length_s = pace.step_time.seconds(
            sum(self.given.values()), len(self._backlog.running), pace.context_tokens
        )
