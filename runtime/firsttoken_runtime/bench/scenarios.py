"""The experiments of scheduling with two or three variants, one per technique. Pure.

Each changes one thing between its variants and keeps the requests, their order and the server. Shares are
exact and the order is shuffled by the seed.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken_api.hot_settings import ClassSettings
from firsttoken_runtime.bench import experiment, lengths, workload
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

PLAIN = ("paged-kv", "continuous-batching")
CHUNKED = (*PLAIN, "chunked-prefill")
DEFAULT = (*CHUNKED, "priority")
"""What is on unless somebody says otherwise, as far as it schedules."""
CLASSES = (
    ClassSettings(name="interactive", priority=10, ttft_p99_s=experiment.NEVER_S),
    ClassSettings(name="batch", priority=0, ttft_p99_s=experiment.NEVER_S),
)


@dataclass(frozen=True)
class Kind:
    """Requests of one group in a mixed load."""

    group: str
    count: int
    prompts: lengths.Lengths
    outputs: lengths.Lengths | None
    """None: they name no limit."""
    request_class: str = ""


def mixed(
    kinds: Sequence[Kind], generator: random.Random, concurrency: int, token_ids: range
) -> workload.Lane:
    """All of them in one closed loop, in shuffled order."""
    requests = []
    for kind in kinds:
        shapes = [
            (kind.prompts.draw(generator), kind.outputs.draw(generator) if kind.outputs else None)
            for _ in range(kind.count)
        ]
        requests += workload.requests(
            generator, shapes, group=kind.group, request_class=kind.request_class, token_ids=token_ids
        )
    generator.shuffle(requests)
    return workload.closed(requests, concurrency)


def priority(
    seed: int, count: int = 512, concurrency: int = 256, token_ids: range = SAFE_TOKEN_IDS
) -> experiment.Experiment:
    """10 % interactive among batch requests of the same lengths. Headers and classes are there in both
    variants; only the flag differs."""
    prompts, outputs = lengths.Uniform(16, 48), lengths.Uniform(8, 24)
    interactive = max(1, count // 10)
    kinds = (
        Kind("interactive", interactive, prompts, outputs, "interactive"),
        Kind("batch", count - interactive, prompts, outputs),
    )
    of_classes = experiment.Variant("off", CHUNKED, classes=CLASSES, default_class="batch")
    return experiment.Experiment(
        name="priority",
        title=f"Priority: {concurrency} at once, 10 % interactive",
        variants=(of_classes, replace(of_classes, name="priority", flags_on=DEFAULT)),
        lanes=(mixed(kinds, random.Random(seed), concurrency, token_ids),),
        server=experiment.ServerNeeds(max_model_len=256, kv_tokens=64 * 96, max_num_seqs=32),
        bars=(
            experiment.Bar(
                "interactive TTFT P99, priority / off",
                "ttft_p99_s",
                "priority",
                "off",
                group="interactive",
                at_most=0.25,
            ),
            experiment.Bar(
                "output tokens/s, priority / off", "output_tokens_per_s", "priority", "off", at_least=0.88
            ),
        ),
    )


def chunked(
    seed: int,
    count: int = 100,
    concurrency: int = 8,
    chunk_tokens: int = 256,
    token_ids: range = SAFE_TOKEN_IDS,
) -> experiment.Experiment:
    """20 % long prompts; what matters is how long the short ones wait behind them. Short prompts go first in
    both variants, as they do by default; only a prompt that is being computed holds them up."""
    long = max(1, count // 5)
    outputs = lengths.Uniform(8, 32)
    kinds = (
        Kind("long", long, lengths.Uniform(700, 900), outputs),
        Kind("short", count - long, lengths.Uniform(16, 64), outputs),
    )
    params = {"chunked-prefill": {"chunkTokens": str(chunk_tokens)}}
    return experiment.Experiment(
        name="chunked",
        title=f"Chunked prefill: {concurrency} at once, 20 % long prompts, chunks of {chunk_tokens}",
        variants=(
            experiment.Variant("whole", (*PLAIN, "priority")),
            experiment.Variant("chunked", DEFAULT, params=params),
        ),
        lanes=(mixed(kinds, random.Random(seed), concurrency, token_ids),),
        server=experiment.ServerNeeds(max_model_len=1024, kv_tokens=16 * 1024),
        bars=(
            experiment.Bar(
                "short requests' TTFT P99, chunked / whole",
                "ttft_p99_s",
                "chunked",
                "whole",
                group="short",
                at_most=0.80,
            ),
            experiment.Bar(
                "output tokens/s, chunked / whole", "output_tokens_per_s", "chunked", "whole", at_least=0.90
            ),
        ),
    )


UNLIMITED_SHARE = 0.08
LONGER_SHARE = 0.04
LIMIT_TOKENS = 64


def length(
    seed: int, count: int = 200, concurrency: int = 48, token_ids: range = SAFE_TOKEN_IDS
) -> experiment.Experiment:
    """A mixed load with more clients than the engine runs: short answers, longer ones, and a few requests
    that state no limit. Those fill the context, unless length control gives them their class's."""
    prompts = lengths.Uniform(16, 48)
    unlimited = max(1, round(count * UNLIMITED_SHARE))
    longer = round(count * LONGER_SHARE)
    short = count - unlimited - longer
    kinds = (
        Kind("no limit", unlimited, prompts, None),
        Kind("longer", longer, prompts, lengths.Uniform(48, 96)),
        Kind("short", short, prompts, lengths.Uniform(4, 16)),
    )
    limited = ClassSettings(name="mixed", ttft_p99_s=experiment.NEVER_S, max_tokens=LIMIT_TOKENS)
    free = limited.model_copy(update={"max_tokens": None})
    off = experiment.Variant("off", CHUNKED, classes=(free,), default_class="mixed")
    return experiment.Experiment(
        name="length",
        title=f"Short answers first and length limits: mixed load, {concurrency} at once",
        variants=(
            off,
            replace(off, name="short first", flags_on=DEFAULT),
            replace(
                off, name="short first, limits", flags_on=(*DEFAULT, "length-control"), classes=(limited,)
            ),
        ),
        lanes=(mixed(kinds, random.Random(seed), concurrency, token_ids),),
        server=experiment.ServerNeeds(max_model_len=256, kv_tokens=8 * 256, max_num_seqs=8),
        bars=(
            experiment.Bar(
                "TTFT P95 of all, short first with limits / off",
                "ttft_p95_s",
                "short first, limits",
                "off",
                at_most=0.70,
            ),
        ),
        notes=(
            f"{short} short (4 to 16 tokens), {longer} longer (48 to 96) and {unlimited} without a limit; "
            f"with limits the last ones get {LIMIT_TOKENS} tokens, without them what the context holds",
            "`short first` alone does the work of `off` in another order",
        ),
    )


OBJECTIVE_FACTOR = 2.5
"""The TPOT objective, as a multiple of what decodes need alone. A prompt's share of a step does not shrink
below 64 tokens, and on a CPU those already double a small step."""
CALIBRATION_TOKENS = 64


def tpot(
    seed: int, count: int = 24, objective_s: float | None = None, token_ids: range = SAFE_TOKEN_IDS
) -> experiment.Experiment:
    """Steady decodes while long prompts pour in. Without an objective yet (None) only the decodes run:
    what they need undisturbed is what the objective is made from."""
    generator = random.Random(seed)
    decode = Kind("decode", count, lengths.Uniform(16, 32), lengths.Uniform(192, 224))
    pouring = Kind("prompts", 64, lengths.Uniform(384, 640), lengths.Uniform(1, 2))
    steady = mixed([decode], generator, 4, token_ids)
    server = experiment.ServerNeeds(max_model_len=1024, kv_tokens=16 * 1024)
    if objective_s is None:
        alone = tuple(replace(one, output_tokens=CALIBRATION_TOKENS) for one in steady.requests[:4])
        return experiment.Experiment(
            name="tpot",
            title="Decodes alone",
            variants=(experiment.Variant("alone", CHUNKED),),
            lanes=(replace(steady, requests=alone),),
            server=server,
        )
    return experiment.Experiment(
        name="tpot",
        title=f"TPOT objective of {objective_s * 1e3:.0f} ms while prompts pour in",
        variants=(
            experiment.Variant("no objective", CHUNKED),
            experiment.Variant("objective", CHUNKED, tpot_p95_s=objective_s),
        ),
        lanes=(steady, replace(mixed([pouring], generator, 3, token_ids), is_background=True)),
        server=server,
        bars=(
            experiment.Bar(
                "decodes' TPOT P95 with the objective, in seconds",
                "tpot_p95_s",
                "objective",
                group="decode",
                at_most=objective_s,
            ),
        ),
        notes=("3 clients send prompts of 384 to 640 tokens as fast as they are answered",),
    )
