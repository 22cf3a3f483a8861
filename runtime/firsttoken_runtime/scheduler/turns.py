"""Nobody starves, whatever classes and integer priorities say.

A prompt is *overdue* when it has waited OVERDUE_S since it arrived or last lost its blocks. One turn in
EVERY belongs to the overdue prompt that has waited longest: of EVERY consecutive steps that compute
prompts, one puts it first. **So with k prompts that wait longer, each of at most c chunks, it gets its
first tokens within EVERY * (k * c + 1) such steps of becoming overdue, and the time its blocks take to
become free.** That time is bounded too: while it is its turn and it does not fit, nobody else takes what
becomes free, and more urgent ones can only take the place of victims, of whom each is one
MAX_PREEMPTIONS times at most.

The most this costs the urgent classes is one step in EVERY, in which they still get the rest.
"""

from firsttoken_runtime.scheduler.sequence import Sequence

OVERDUE_S = 10.0
EVERY = 8


class Turns:
    """Counts the steps since the longest waiting one was given tokens."""

    def __init__(self) -> None:
        self._since_served = 0

    def is_due(self) -> bool:
        return self._since_served >= EVERY - 1

    def note(self, *, has_prefills: bool, is_served: bool) -> None:
        """After a step in which somebody was overdue."""
        if is_served:
            self._since_served = 0
        elif has_prefills:
            self._since_served += 1


def overdue(candidates: list[Sequence], now: float) -> Sequence | None:
    """Of these the one that has waited longest, if that is too long."""
    longest = min(candidates, key=lambda one: (one.waiting_since_s, one.sequence_id), default=None)
    return longest if longest is not None and now - longest.waiting_since_s >= OVERDUE_S else None
