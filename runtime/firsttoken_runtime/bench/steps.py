"""`bench table`: from the baseline to all scheduling flags, step by step. Pure.

Every step has the same KV bytes, so many that the baseline, which gives each sequence a slab of
`max_model_len`, holds eight sequences.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken_api import flags
from firsttoken_runtime.bench import arrivals, experiment, lengths, reference, workload

BASELINE_SLABS = 8


@dataclass(frozen=True)
class Profile:
    """A load and the context it needs."""

    name: str
    max_model_len: int
    requests: int
    concurrency: int
    prompts: lengths.Lengths | lengths.Mixture
    outputs: lengths.Lengths | lengths.Mixture
    time_limit_s: float


_CPU = Profile(
    "cpu",
    max_model_len=1024,
    requests=120,
    concurrency=32,
    prompts=lengths.Mixture(lengths.Uniform(32, 128), lengths.Uniform(512, 768), rare_share=0.10),
    outputs=lengths.LogNormal(median=20, sigma=0.8, low=8, high=64),
    time_limit_s=45 * 60,
)
PROFILES = {
    profile.name: profile
    for profile in (
        _CPU,
        replace(_CPU, name="cpu-uniform", outputs=lengths.Uniform(8, 64)),
        Profile(
            "reference",
            max_model_len=4096,
            requests=500,
            concurrency=32,
            prompts=lengths.Mixture(lengths.Uniform(128, 512), lengths.Uniform(2049, 3072), rare_share=0.06),
            outputs=lengths.Uniform(32, 256),
            time_limit_s=8 * 3600,
        ),
        replace(
            _CPU,
            name="long-tail",
            prompts=lengths.LogNormal(median=64, sigma=1.0, low=8, high=768),
            outputs=lengths.LogNormal(median=20, sigma=0.8, low=4, high=192),
        ),
    )
}

STEPS = (
    ("baseline", ()),
    ("paged", ("paged-kv",)),
    ("continuous", ("paged-kv", "continuous-batching")),
    ("chunked", ("paged-kv", "continuous-batching", "chunked-prefill", "priority")),
)


def variants(built: Sequence[str] = flags.BUILT) -> tuple[tuple[experiment.Variant, ...], list[str]]:
    """The steps with those of their flags that are built, and the names of the others."""
    made = tuple(experiment.Variant(name, tuple(flag for flag in on if flag in built)) for name, on in STEPS)
    wanted = dict.fromkeys(flag for _, on in STEPS for flag in on)
    return made, [flag for flag in wanted if flag not in built]


def bars(last: str) -> tuple[experiment.Bar, ...]:
    first = STEPS[0][0]
    return (
        experiment.Bar(
            "TTFT P99, last step / baseline",
            "ttft_p99_s",
            last,
            first,
            at_most=reference.TTFT_P99_FACTOR,
        ),
        experiment.Bar(
            "requests/s, last step / baseline",
            "requests_per_s",
            last,
            first,
            at_least=reference.THROUGHPUT_FACTOR,
        ),
        experiment.Bar("KV memory use, last step", "kv_use", last, at_least=reference.KV_USE),
        experiment.Bar("internal waste, last step", "kv_waste", last, at_most=reference.KV_WASTE),
    )


def requests(
    profile: Profile, seed: int, count: int, token_ids: range = workload.SAFE_TOKEN_IDS
) -> list[workload.Request]:
    generator = random.Random(seed)
    prompts = lengths.draw_many(profile.prompts, generator, count)
    outputs = lengths.draw_many(profile.outputs, generator, count)
    return workload.requests(generator, list(zip(prompts, outputs, strict=True)), token_ids=token_ids)


def build(
    profile: Profile, lane: workload.Lane, notes: Sequence[str] = (), block_size_tokens: int = 16
) -> experiment.Experiment:
    made, missing = variants()
    said = [f"flag {name} is not built and left out" for name in missing]
    return experiment.Experiment(
        name="table",
        title=f"From the baseline to all scheduling flags (profile {profile.name})",
        variants=made,
        lanes=(lane,),
        server=experiment.ServerNeeds(
            max_model_len=profile.max_model_len,
            kv_tokens=BASELINE_SLABS * profile.max_model_len,
            block_size_tokens=block_size_tokens,
        ),
        bars=bars(made[-1].name),
        notes=(
            f"every step has the KV bytes of {BASELINE_SLABS} slabs of {profile.max_model_len} tokens",
            *said,
            *notes,
        ),
    )


def poisson_lane(made: Sequence[workload.Request], rate_per_s: float, seed: int) -> workload.Lane:
    return workload.opened(made, arrivals.poisson(random.Random(seed + 1), rate_per_s, len(made)))


def trace_lane(
    scaled: arrivals.Scaled, seed: int, token_ids: range = workload.SAFE_TOKEN_IDS
) -> workload.Lane:
    """Random prompts of the trace's lengths at the trace's times."""
    ordered = sorted(scaled.arrivals, key=lambda one: one.at_s)
    made = workload.requests(
        random.Random(seed), [(one.prompt_tokens, one.output_tokens) for one in ordered], token_ids=token_ids
    )
    return workload.opened(made, [one.at_s for one in ordered])
