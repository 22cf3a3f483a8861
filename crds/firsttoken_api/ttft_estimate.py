"""When a request that came now would have its first token, from what an engine and its sidecar report. Pure.

Admission asks it of its own engine, with the exact work ahead; routing asks it of every peer, with the sums
that the peers report. It is the expected time: what errors it makes is learned where it is used.

The engine computes all prompts in one line, several in a step, beside a token for each answer that runs:

    time = rest of the step that runs + steps * (fixed + answers) + tokens * price
    tokens = ahead + own,   steps = the more of  tokens / chunk  and  prompts / prompts per step

A request that finds no slot starts when one becomes free, or when the prompts ahead of it are computed,
whichever is later. Prompts of more urgent classes that come meanwhile go first; see `overtaking`.
"""

import math
from typing import Protocol

from firsttoken_api import overtaking
from firsttoken_api.state import LoadState
from firsttoken_api.step_time import StepTime

RUNNING_STEP_LEFT = 0.5
"""Of the step that runs, on average."""


class Engine(Protocol):
    """What of an engine an estimate reads; `LoadState` has it."""

    @property
    def step_time(self) -> StepTime | None: ...
    @property
    def chunk_tokens(self) -> int: ...
    @property
    def max_prefill_batch(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def decoding(self) -> int: ...
    @property
    def context_tokens(self) -> int: ...
    @property
    def prefill_tokens_per_s(self) -> float: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...


def estimate(load: LoadState, priority: int, uncached_tokens: int) -> float:
    """Seconds until the first token of a request of that priority, behind all that wait and are as urgent.

    0 where the engine's speed is not known.
    """
    ahead = [key for key in load.ahead_tokens_by_priority if int(key) >= priority]
    return seconds(
        load,
        ahead_tokens=sum(load.ahead_tokens_by_priority[key] for key in ahead),
        ahead_requests=sum(load.ahead_requests_by_priority.get(key, 1) for key in ahead),
        uncached_tokens=uncached_tokens,
        slot_wait_s=load.slot_wait_s,
        arriving=overtaking.Arriving(
            sum(share for key, share in load.arriving_share_by_priority.items() if int(key) > priority)
        ),
    )


def seconds(
    engine: Engine,
    *,
    ahead_tokens: float,
    ahead_requests: float,
    uncached_tokens: int,
    slot_wait_s: float = 0.0,
    arriving: overtaking.Arriving = overtaking.NOBODY,
    deviations: float = 0.0,
    rest_s: float | None = None,
    joining_tokens: float = 0.0,
) -> float:
    """With the work ahead as the caller counts it, less what the step that runs computes of it.

    arriving, deviations: of work that comes later and goes first, see `overtaking`; rest_s: of the step that
    runs, None = not known; joining_tokens: of others, that will be computed in the request's own step.
    """
    own_tokens = max(uncached_tokens, 1)
    step, chunk = engine.step_time, engine.chunk_tokens
    if step is None or chunk <= 0:
        rate = engine.prefill_tokens_per_s
        if rate <= 0:
            return slot_wait_s
        line_s = max(slot_wait_s, ahead_tokens / rate)
        return overtaking.start_s(line_s, arriving, deviations) + own_tokens / rate
    decoding = min(engine.decoding + ahead_requests / 2, engine.max_num_seqs or math.inf)
    beside_s = step.seconds(0, decoding, engine.context_tokens)
    if rest_s is None:
        is_busy = engine.running > 0 or engine.waiting > 0
        rest_s = RUNNING_STEP_LEFT * beside_s if is_busy else 0.0
    tokens = ahead_tokens + own_tokens
    steps = math.ceil(tokens / chunk)
    if engine.max_prefill_batch:
        steps = max(steps, math.ceil((ahead_requests + 1) / engine.max_prefill_batch))
    own_steps = math.ceil(own_tokens / chunk)
    room_tokens = steps * chunk - tokens
    own_s = own_steps * beside_s + (own_tokens + min(joining_tokens, room_tokens)) * step.per_prefill_token_s
    line_s = rest_s + (steps - own_steps) * beside_s + ahead_tokens * step.per_prefill_token_s
    return overtaking.start_s(max(line_s, slot_wait_s), arriving, deviations) + own_s
