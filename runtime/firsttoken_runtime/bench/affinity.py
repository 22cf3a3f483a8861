"""`bench affinity`: shared prefixes that alternate, with prefix affinity and without. Pure."""

import random
from dataclasses import replace

from firsttoken_runtime.bench import experiment, lengths, reference, sharing, workload
from firsttoken_runtime.bench.reuse import CACHED
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

PREFIX_TOKENS = 512


def affinity(
    seed: int,
    prefixes: int = 6,
    count: int = 8,
    max_wait: str = "30s",
    token_ids: range = SAFE_TOKEN_IDS,
) -> experiment.Experiment:
    """`count` requests for each of `prefixes` shared prefixes, in turn, all of them there at once: more
    prefixes than the pool can keep. And, as a control, two prefixes, which it can."""
    generator = random.Random(seed)

    def lane(families: int) -> workload.Lane:
        made = []
        for number in range(families):
            shared = workload.prompt(generator, PREFIX_TOKENS, token_ids)
            made.append(
                sharing.questions(
                    generator,
                    shared,
                    count,
                    lengths.Uniform(8, 24),
                    2,
                    group=f"prefix {number}",
                    token_ids=token_ids,
                )
            )
        requests = [replace(one, group="") for one in sharing.alternating(made)]
        return workload.closed(requests, len(requests))

    many, few = lane(prefixes), lane(2)
    flags_on = (*CACHED, "prefix-affinity")
    params = {"prefix-affinity": {"maxWait": max_wait}}
    off = experiment.Variant("off", CACHED)
    on = experiment.Variant("affinity", flags_on, params=params)
    control = replace(off, name="2 prefixes, off", lanes=(few,), against="2 prefixes, off")
    control_on = replace(on, name="2 prefixes, affinity", lanes=(few,), against=control.name)
    running = 2
    kv_tokens = (running + 1) * (PREFIX_TOKENS + 64)
    return experiment.Experiment(
        name="affinity",
        title=f"Prefix affinity: {prefixes} prefixes of {PREFIX_TOKENS} tokens in turn, {count} times",
        variants=(off, on, control, control_on),
        lanes=(many,),
        server=experiment.ServerNeeds(max_model_len=1024, kv_tokens=kv_tokens, max_num_seqs=running),
        bars=(
            experiment.Bar(
                "prompt tokens/s, affinity / off",
                "prompt_tokens_per_s",
                on.name,
                off.name,
                at_least=reference.AFFINITY_PREFILL_FACTOR,
            ),
            experiment.Bar(
                "TTFT P95, affinity / off",
                "ttft_p95_s",
                on.name,
                off.name,
                at_most=reference.AFFINITY_TTFT_P95_FACTOR,
            ),
        ),
        notes=(
            f"a pool of {kv_tokens} tokens keeps what runs and about one prefix more; maxWait {max_wait}",
            "affinity can only save what the cache loses between two requests of a prefix: where all of them "
            "fit (2 prefixes), or where each follows its like, off finds them too: there is nothing to gain",
            f"reference figures: {reference.AFFINITY_SAYS}",
        ),
    )
