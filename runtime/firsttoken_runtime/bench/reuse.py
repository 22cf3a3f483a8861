"""`bench prefix`: a shared system prompt, and a mixed load, with the prefix cache and without. Pure.

Every round has a salt of its own, so that it finds only what it has brought itself.
"""

import random
from dataclasses import replace

from firsttoken_runtime.bench import experiment, lengths, reference, sharing, workload
from firsttoken_runtime.bench.scenarios import CHUNKED
from firsttoken_runtime.bench.sharing import LATER
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

CACHED = (*CHUNKED, "prefix-cache")
SYSTEM_TOKENS = 1200
BLOCK_TOKENS = 16


def prefix(
    seed: int, count: int = 8, mixed_count: int = 30, concurrency: int = 8, token_ids: range = SAFE_TOKEN_IDS
) -> experiment.Experiment:
    """One client whose prompts share a system prompt; and eight with a mixed load: half of it shares a system
    prompt, a third is turns of conversations, the rest shares nothing."""
    generator = random.Random(seed)
    system = workload.prompt(generator, SYSTEM_TOKENS, token_ids)
    tails = lengths.Uniform(24, 72)
    alone = workload.closed(sharing.questions(generator, system, count + 1, tails, 8, token_ids=token_ids), 1)
    lanes = _mixed(generator, mixed_count, concurrency, token_ids)
    off = experiment.Variant("alone, off", CHUNKED, lanes=(alone,))
    mixed_off = experiment.Variant("mixed, off", CHUNKED, lanes=lanes)
    on = replace(off, name="alone, prefix-cache", flags_on=CACHED)
    mixed_on = replace(mixed_off, name="mixed, prefix-cache", flags_on=CACHED, against=mixed_off.name)
    whole_blocks = SYSTEM_TOKENS // BLOCK_TOKENS * BLOCK_TOKENS
    least = whole_blocks - BLOCK_TOKENS
    return experiment.Experiment(
        name="prefix",
        title=f"Prefix cache: a shared system prompt of {SYSTEM_TOKENS:,} tokens, and a mixed load",
        variants=(off, on, replace(mixed_off, against=mixed_off.name), mixed_on),
        lanes=(alone,),
        server=experiment.ServerNeeds(max_model_len=2048, kv_tokens=20 * 1024, max_num_seqs=16),
        bars=(
            experiment.Bar(
                f"alone, prompts after the first: cached tokens of each by the counter, of {SYSTEM_TOKENS}",
                "counted_cached_tokens",
                on.name,
                group=LATER,
                at_least=least,
            ),
            experiment.Bar(
                "alone, prompts after the first: least cached tokens by usage",
                "least_cached_tokens",
                on.name,
                group=LATER,
                at_least=least,
            ),
            experiment.Bar(
                "alone, prompts after the first: TTFT P50, on / off",
                "ttft_p50_s",
                on.name,
                off.name,
                group=LATER,
                at_most=reference.PREFIX_TTFT_FACTOR,
            ),
            experiment.Bar(
                "mixed load: prompt tokens computed, on / off",
                "computed_tokens",
                mixed_on.name,
                mixed_off.name,
                at_most=reference.PREFILL_WORK_FACTOR,
            ),
        ),
        notes=(
            f"alone: one client, {count + 1} prompts of the system prompt and 24 to 72 tokens of their own; "
            "the first of each round finds nothing, its figures are the group `first`",
            f"mixed: {mixed_count} requests, up to {concurrency} at once: half begin with a system prompt, a "
            "third are turns of conversations, the others share nothing; all rounds start cold",
            f"reference figures: {reference.PREFIX_SAYS}",
        ),
    )


def _mixed(
    generator: random.Random, count: int, concurrency: int, token_ids: range
) -> tuple[workload.Lane, ...]:
    """Conversations are lanes of one client each, since a turn follows the answer before it."""
    system = workload.prompt(generator, SYSTEM_TOKENS, token_ids)
    shape = sharing.Conversations(turns=5, first_tokens=256, turn_tokens=64, output_tokens=16)
    conversations = max(1, round(count / 3 / shape.turns))
    questions = max(2, count // 2)
    others = max(1, count - questions - conversations * shape.turns)
    requests = [
        *sharing.questions(
            generator, system, questions, lengths.Uniform(24, 72), 16, group="system", token_ids=token_ids
        ),
        *workload.requests(
            generator,
            [(lengths.Uniform(64, 384).draw(generator), 16) for _ in range(others)],
            group="others",
            token_ids=token_ids,
        ),
    ]
    generator.shuffle(requests)
    turns = [
        workload.closed(sharing.conversation(generator, shape, group="turns", token_ids=token_ids), 1)
        for _ in range(conversations)
    ]
    return (workload.closed(requests, max(1, concurrency - conversations)), *turns)
