"""The experiments with two or three variants, one per technique. Pure.

Each changes one thing between its variants and keeps the requests, their order and the server. Shares are
exact and the order is shuffled by the seed.
"""

import random
from dataclasses import replace

from firsttoken_api.hot_settings import ClassSettings
from firsttoken_runtime.bench import experiment, lengths, workload

PLAIN = ("paged-kv", "continuous-batching")
CHUNKED = (*PLAIN, "chunked-prefill")
CLASSES = (
    ClassSettings(name="interactive", priority=10, ttft_p99_s=experiment.NEVER_S),
    ClassSettings(name="batch", priority=0, ttft_p99_s=experiment.NEVER_S),
)


def _shuffled(generator: random.Random, requests: list[workload.Request]) -> list[workload.Request]:
    generator.shuffle(requests)
    return requests


def _draw(
    generator: random.Random, count: int, prompts: lengths.Lengths, outputs: lengths.Lengths
) -> list[tuple[int, int | None]]:
    return [(prompts.draw(generator), outputs.draw(generator)) for _ in range(count)]


def priority(seed: int, count: int = 512, concurrency: int = 256) -> experiment.Experiment:
    """10 % interactive among batch requests of the same lengths. Headers and classes are there in both
    variants; only the flag differs."""
    generator = random.Random(seed)
    prompts, outputs = lengths.Uniform(16, 48), lengths.Uniform(8, 24)
    interactive = max(1, count // 10)
    requests = [
        *workload.requests(
            generator,
            _draw(generator, interactive, prompts, outputs),
            group="interactive",
            request_class="interactive",
        ),
        *workload.requests(generator, _draw(generator, count - interactive, prompts, outputs), group="batch"),
    ]

    def variant(name: str, flags_on: tuple[str, ...]) -> experiment.Variant:
        return experiment.Variant(name, flags_on, classes=CLASSES, default_class="batch")

    return experiment.Experiment(
        name="priority",
        title=f"Priority: {concurrency} at once, 10 % interactive",
        variants=(variant("off", CHUNKED), variant("priority", (*CHUNKED, "priority"))),
        lanes=(workload.closed(_shuffled(generator, requests), concurrency),),
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
    seed: int, count: int = 100, concurrency: int = 8, chunk_tokens: int = 256
) -> experiment.Experiment:
    """20 % long prompts; what matters is how long the short ones wait behind them."""
    generator = random.Random(seed)
    long = max(1, count // 5)
    outputs = lengths.Uniform(8, 32)
    requests = [
        *workload.requests(
            generator, _draw(generator, long, lengths.Uniform(700, 900), outputs), group="long"
        ),
        *workload.requests(
            generator, _draw(generator, count - long, lengths.Uniform(16, 64), outputs), group="short"
        ),
    ]
    params = {"chunked-prefill": {"chunkTokens": str(chunk_tokens)}}
    return experiment.Experiment(
        name="chunked",
        title=f"Chunked prefill: {concurrency} at once, 20 % long prompts, chunks of {chunk_tokens}",
        variants=(
            experiment.Variant("whole", PLAIN),
            experiment.Variant("chunked", CHUNKED, params=params),
        ),
        lanes=(workload.closed(_shuffled(generator, requests), concurrency),),
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


UNLIMITED_SHARE = 0.04
LIMIT_TOKENS = 64


def length(seed: int, count: int = 200, concurrency: int = 48) -> experiment.Experiment:
    """A mixed load with more clients than the engine runs: short answers, longer ones, and a few requests
    that state no limit. Those fill the context, unless length control gives them their class's."""
    generator = random.Random(seed)
    prompts = lengths.Uniform(16, 48)
    unlimited = max(1, round(count * UNLIMITED_SHARE))
    longer = round(count * 0.16)
    short = count - unlimited - longer
    open_ended: list[tuple[int, int | None]] = [(prompts.draw(generator), None) for _ in range(unlimited)]
    requests = [
        *workload.requests(generator, open_ended, group="no limit"),
        *workload.requests(
            generator, _draw(generator, longer, prompts, lengths.Uniform(48, 96)), group="longer"
        ),
        *workload.requests(
            generator, _draw(generator, short, prompts, lengths.Uniform(4, 16)), group="short"
        ),
    ]
    limited = ClassSettings(name="mixed", ttft_p99_s=experiment.NEVER_S, max_tokens=LIMIT_TOKENS)
    free = limited.model_copy(update={"max_tokens": None})
    return experiment.Experiment(
        name="length",
        title=f"Short answers first and length limits: mixed load, {concurrency} at once",
        variants=(
            experiment.Variant("off", CHUNKED, classes=(free,), default_class="mixed"),
            experiment.Variant("short first", (*CHUNKED, "priority"), classes=(free,), default_class="mixed"),
            experiment.Variant(
                "short first, limits",
                (*CHUNKED, "priority", "length-control"),
                classes=(limited,),
                default_class="mixed",
            ),
        ),
        lanes=(workload.closed(_shuffled(generator, requests), concurrency),),
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


OBJECTIVE_FACTOR = 1.5
"""The TPOT objective, as a multiple of what decodes need alone."""
CALIBRATION_TOKENS = 64


def tpot(seed: int, count: int = 24, objective_s: float | None = None) -> experiment.Experiment:
    """Steady decodes while long prompts pour in. Without an objective yet (None) only the decodes run:
    what they need undisturbed is what the objective is made from."""
    generator = random.Random(seed)
    decodes = workload.requests(
        generator, _draw(generator, count, lengths.Uniform(16, 32), lengths.Uniform(192, 224)), group="decode"
    )
    pouring = workload.requests(
        generator, _draw(generator, 64, lengths.Uniform(384, 640), lengths.Uniform(1, 2)), group="prompts"
    )
    steady = workload.closed(decodes, 4)
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
        lanes=(steady, workload.Lane(tuple(pouring), 3, is_background=True)),
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
