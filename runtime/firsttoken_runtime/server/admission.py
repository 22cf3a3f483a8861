"""Whether a request may join the queue. Pure: facts in, a refusal or nothing out.

What can never fit is a 400, said when the prompt is known (`sampling`). Here is what cannot be served in
time: a prompt whose turn is expected later than anybody waits for it only makes those behind it late.
The wait is the uncached prompt tokens ahead of it, in the scheduler's order, over the measured prefill
rate; where nothing was measured yet, nothing is refused. One prompt of its own is no wait: an idle engine
takes it however long it computes, and a few tokens of others must not make that a refusal.
"""

import math
from dataclasses import dataclass

from firsttoken_runtime import core

LEAST_WAIT_LIMIT_S = 30.0
OBJECTIVES_WAITED = 10.0
"""Somebody who waits ten times the objective has long been counted as a breach."""
LONGEST_RETRY_AFTER_S = 120


@dataclass(frozen=True)
class Refusal:
    """Why not now, and when to ask again."""

    expected_wait_s: float
    limit_s: float

    @property
    def retry_after_s(self) -> int:
        """Until the queue is short enough again, if nobody else comes."""
        return min(max(1, math.ceil(self.expected_wait_s - self.limit_s)), LONGEST_RETRY_AFTER_S)

    def __str__(self) -> str:
        return (
            f"the prompt's turn would come in about {self.expected_wait_s:.0f} s, "
            f"longer than the {self.limit_s:.0f} s that this server lets a request wait"
        )


def wait_limit_s(objective_s: float) -> float:
    """The longest wait that is still worth its place in the queue, from the TTFT objective."""
    return max(LEAST_WAIT_LIMIT_S, OBJECTIVES_WAITED * objective_s)


def expected_wait_s(stats: core.Stats, prompt_tokens: int, ahead: int) -> float | None:
    """Until the turn of a prompt with `ahead` uncomputed tokens before it; None = not known.

    `prompt_tokens`: of the request's other prompts.
    """
    if stats.prefill_tokens_per_s <= 0:
        return None
    return (ahead + prompt_tokens) / stats.prefill_tokens_per_s


def refusal(stats: core.Stats | None, *, prompt_tokens: int, ahead: int, limit_s: float) -> Refusal | None:
    """None: welcome. An idle engine takes everything, however long it computes."""
    if stats is None or ahead == 0:
        return None
    wait_s = expected_wait_s(stats, prompt_tokens, ahead)
    if wait_s is None or wait_s <= limit_s:
        return None
    return Refusal(wait_s, limit_s)
