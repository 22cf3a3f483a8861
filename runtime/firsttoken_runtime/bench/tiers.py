"""`bench tiers`: conversations that do not fit the device pool, with a host tier and without. Pure."""

import random
from dataclasses import replace

from firsttoken_runtime.bench import experiment, sharing
from firsttoken_runtime.bench.reuse import BLOCK_TOKENS, CACHED
from firsttoken_runtime.bench.sharing import LATER
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

TURN_SHAPE = sharing.Conversations(turns=5, first_tokens=320, turn_tokens=48, output_tokens=8)
TIER_FLAGS = (*CACHED, "kv-tiering")
TIERS_PARAMS = {"prefix-cache": {"maxFraction": "1.00"}}
SAME = 1.05
"""A ratio of two equal things that are measured is not exactly 1."""


def tiers(
    seed: int,
    sessions: int = 4,
    pause_s: float = 20.0,
    kv_bytes_per_token: int = 0,
    token_ids: range = SAFE_TOKEN_IDS,
) -> experiment.Experiment:
    """Conversations whose KV fits the device pool; twice as many without a host tier; and with one of twice
    the pool's bytes. The two larger loads are the same requests."""
    generator = random.Random(seed)
    made = [sharing.conversation(generator, TURN_SHAPE, token_ids=token_ids) for _ in range(2 * sessions)]
    one = sharing.open_conversations(random.Random(seed + 1), made[:sessions], pause_s)
    two = sharing.open_conversations(random.Random(seed + 2), made, pause_s)
    blocks_each = -(-TURN_SHAPE.longest_tokens // BLOCK_TOKENS)
    kv_tokens = (sessions + 1) * blocks_each * BLOCK_TOKENS
    off = experiment.Variant(f"{sessions} sessions, off", CACHED, TIERS_PARAMS, lanes=(one,))
    crowded = replace(off, name=f"{2 * sessions} sessions, off", lanes=(two,))
    tiered = replace(crowded, name=f"{2 * sessions} sessions, kv-tiering", flags_on=TIER_FLAGS)
    return experiment.Experiment(
        name="tiers",
        title=f"Host tier: {sessions} and {2 * sessions} conversations of {TURN_SHAPE.turns} turns",
        variants=(off, crowded, tiered),
        lanes=(one,),
        server=experiment.ServerNeeds(
            max_model_len=1024,
            kv_tokens=kv_tokens,
            max_num_seqs=16,
            host_memory_bytes=2 * kv_tokens * kv_bytes_per_token,
        ),
        bars=(
            experiment.Bar(
                "TTFT P95 of later turns, twice the sessions with a host tier / the sessions without "
                "(same within 5 %)",
                "ttft_p95_s",
                tiered.name,
                off.name,
                group=LATER,
                at_most=SAME,
            ),
            experiment.Bar(
                "requests/s, twice the sessions with a host tier / the sessions without",
                "requests_per_s",
                tiered.name,
                off.name,
                at_least=1.8,
            ),
        ),
        notes=(
            f"a conversation: {TURN_SHAPE.turns} turns, the first of {TURN_SHAPE.first_tokens} tokens, each "
            f"other adds {TURN_SHAPE.turn_tokens} to what was said; answers of {TURN_SHAPE.output_tokens}; a "
            f"person pauses for {0.75 * pause_s:g} to {1.25 * pause_s:g} s (open loop)",
            f"the device pool has {kv_tokens} tokens: the KV of {sessions} conversations and room for what "
            "runs; the host tier has twice the bytes",
            "an open session is one between its first and its last turn: the load is that of people who "
            "read, which leaves the processor time to spare; a saturated one waits for itself, not for KV",
        ),
    )
