"""How a replica looks to one request: from what was last seen of it to seconds to the first token. Pure."""

import math
from dataclasses import dataclass

from firsttoken_api import ttft_estimate
from firsttoken_api.state import LoadState
from firsttoken_sidecar import inspection, routing

NOMINAL_TOKENS_PER_S = 1_000.0
"""Of a replica whose speed is not known; all such then compare by what waits."""
NOMINAL_REQUEST_S = 0.1
"""Of each request that waits there."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of one replica."""

    name: str
    zone: str
    load: LoadState | None
    unseen_tokens: int = 0
    """Of requests that were sent there and are not in `load` yet."""
    age_s: float = 0.0
    """Of `load`; so much of what waited then has been worked off."""


def replica(
    look: Look,
    asked: inspection.Inspected,
    priority: int,
    *,
    known_pieces: int = 0,
    expected_pieces: int = 0,
) -> routing.Replica:
    """The replica as the request finds it. So many of its first pieces are known, or can be expected, to be
    in the replica's cache."""
    hit_tokens = _tokens(asked, known_pieces)
    uncached_tokens = max(
        asked.estimated_prompt_tokens - _tokens(asked, max(known_pieces, expected_pieces)), 1
    )
    wait_s, work_s, limit_s = _seconds(look, priority, uncached_tokens)
    return routing.Replica(look.name, look.zone, wait_s, wait_s + work_s, hit_tokens, limit_s)


def _seconds(look: Look, priority: int, uncached_tokens: int) -> tuple[float, float, float]:
    """Wait, own work, and the largest estimate that is let in."""
    load = look.load
    if load is None or (load.step_time is None and load.prefill_tokens_per_s <= 0):
        waited_s = (load.waiting if load is not None else 0) * NOMINAL_REQUEST_S
        unseen_s = look.unseen_tokens / NOMINAL_TOKENS_PER_S
        work_s = uncached_tokens / NOMINAL_TOKENS_PER_S
        return max(0.0, waited_s - look.age_s) + unseen_s, work_s, math.inf
    seen_s = ttft_estimate.estimate(load, priority, 1)
    wait_s = ttft_estimate.estimate(load, priority, look.unseen_tokens + 1)
    all_s = ttft_estimate.estimate(load, priority, look.unseen_tokens + uncached_tokens)
    limit_s = load.limit_s.get(str(priority), math.inf)
    return wait_s - min(look.age_s, seen_s), all_s - wait_s, limit_s


def _tokens(asked: inspection.Inspected, pieces: int) -> int:
    """Of the prompt's first pieces."""
    if not asked.prompt_bytes:
        return 0
    share = min(pieces * inspection.PREFIX_PIECE_BYTES / asked.prompt_bytes, 1.0)
    return int(asked.estimated_prompt_tokens * share)
