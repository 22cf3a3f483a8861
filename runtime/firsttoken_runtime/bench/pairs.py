"""`bench pairs`: is any two flags together slower than the better of the two? And our rule beside the
published one. Pure.

Each flag is measured alone and with every other one it may be combined with, under one load in which each
has something to gain: shared prefixes, long prompts among short ones, and less KV memory than clients. What
a variant differs from itself between repeats is the noise that a pair must stay within.
"""

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken_api import flags
from firsttoken_runtime.bench import experiment, lengths, sharing, summary, workload
from firsttoken_runtime.bench.scenarios import PLAIN
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

FLAGS = (
    *("chunked-prefill", "prefix-cache", "priority", "prefix-affinity", "kv-tiering"),
    *("kv-int8", "kv-fp8"),
)
"""Of those that are built. Not `length-control`: it changes what is asked for, not the speed."""
BASE = "base"
OUR_RULE = "our rule"
PUBLISHED_RULE = "published rule"
NO_RULE = "nothing declared"
RULES = (OUR_RULE, PUBLISHED_RULE, NO_RULE)
LEAST_NOISE = 0.03
"""Relative. So few repeats can agree by chance."""


@dataclass(frozen=True)
class Pair:
    """Two flags together, and each alone, as names of variants."""

    name: str
    parts: tuple[str, str]


def closure(*names: str) -> tuple[str, ...]:
    """The base, these flags and all that they need, in the order in which flags are declared."""
    wanted = {*PLAIN, *names}
    while needed := {need for name in wanted for need in flags.BY_NAME[name].needs} - wanted:
        wanted |= needed
    return tuple(flag.name for flag in flags.FLAGS if flag.name in wanted)


def pairs(built: Sequence[str] = flags.BUILT) -> list[Pair]:
    """All that may be on together and are more than one of them with what it needs."""
    found = []
    for one, other in itertools.combinations([name for name in FLAGS if name in built], 2):
        if other in flags.BY_NAME[one].excludes or one in flags.BY_NAME[other].excludes:
            continue
        together = closure(one, other)
        if together not in (closure(one), closure(other)):
            found.append(Pair(f"{one} + {other}", (one, other)))
    return found


def variants(built: Sequence[str] = flags.BUILT) -> list[experiment.Variant]:
    """The base, each flag alone, the pairs."""
    alone = [experiment.Variant(name, closure(name)) for name in FLAGS if name in built]
    together = [experiment.Variant(pair.name, closure(*pair.parts)) for pair in pairs(built)]
    return [experiment.Variant(BASE, PLAIN), *alone, *together]


PREFIX_TOKENS = 192


def load(seed: int, count: int, *, token_ids: range = SAFE_TOKEN_IDS) -> list[workload.Request]:
    """Two thirds of the requests share one of two prefixes, one of twelve is long, the others are short."""
    generator = random.Random(seed)
    outputs = lengths.Uniform(8, 24)
    long = max(1, count // 12)
    sharing_count = max(2, count * 2 // 3) // 2
    made = []
    for _ in range(2):
        shared = workload.prompt(generator, PREFIX_TOKENS, token_ids)
        made += sharing.questions(
            generator, shared, sharing_count, lengths.Uniform(8, 32), 16, group="shared", token_ids=token_ids
        )
    rest = max(0, count - len(made) - long)
    shapes = [(lengths.Uniform(400, 600).draw(generator), outputs.draw(generator)) for _ in range(long)]
    shapes += [(lengths.Uniform(16, 48).draw(generator), outputs.draw(generator)) for _ in range(rest)]
    made += workload.requests(generator, shapes, group="others", token_ids=token_ids)
    generator.shuffle(made)
    return made


def published(requests: Sequence[workload.Request]) -> list[workload.Request]:
    """As the published rule keeps them: the first of a shared prefix finds nothing and is quantized, so it
    declares nothing; those after it find the prefix, which is then kept in full precision."""
    seen = set()
    kept = []
    for one in requests:
        key = one.prompt_token_ids[: one.shared_prefix_tokens]
        is_first = bool(key) and key not in seen
        seen.add(key)
        kept.append(replace(one, shared_prefix_tokens=0) if is_first else one)
    return kept


def rules(requests: Sequence[workload.Request], concurrency: int) -> list[experiment.Variant]:
    """The same flags and prompts under three rules of what is kept in full precision."""
    flags_on = closure("prefix-cache", "kv-int8")
    plain = [replace(one, shared_prefix_tokens=0) for one in requests]
    loads = {OUR_RULE: list(requests), PUBLISHED_RULE: published(requests), NO_RULE: plain}
    return [
        experiment.Variant(name, flags_on, lanes=(workload.closed(made, concurrency),), against=OUR_RULE)
        for name, made in loads.items()
    ]


def asked(rule: str, question: workload.Request) -> tuple[workload.Request, workload.Request]:
    """(while nothing is cached, from then on): how a question declares its prefix under a rule."""
    plain = replace(question, shared_prefix_tokens=0)
    return (question if rule == OUR_RULE else plain, plain if rule == NO_RULE else question)


def build(
    seed: int, count: int, concurrency: int, kv_bytes_per_token: int, token_ids: range = SAFE_TOKEN_IDS
) -> experiment.Experiment:
    requests = load(seed, count, token_ids=token_ids)
    missing = [name for name in FLAGS if name not in flags.BUILT]
    made = variants()
    if {"prefix-cache", "kv-int8"} <= set(flags.BUILT):
        made += rules(requests, concurrency)
    kv_tokens = 6 * 320
    return experiment.Experiment(
        name="pairs",
        title="Pairs of flags, each beside the better of its parts",
        variants=tuple(made),
        lanes=(workload.closed(requests, concurrency),),
        server=experiment.ServerNeeds(
            max_model_len=1024,
            kv_tokens=kv_tokens,
            max_num_seqs=16,
            host_memory_bytes=2 * kv_tokens * kv_bytes_per_token,
        ),
        notes=(
            f"{len(requests)} requests, {concurrency} clients, {kv_tokens} tokens of unquantized KV; every "
            f"variant also has {', '.join(PLAIN)} and what its flags need",
            *([f"not built and left out: {', '.join(missing)}"] if missing else []),
            "a pair is slower when the median time that it takes for the load is above that of its better "
            "part by more than twice the noise",
            f"{OUR_RULE}: a declared shared prefix is in full precision, found or not; {PUBLISHED_RULE}: the "
            "first request of a prefix is quantized, those that find it keep it in full precision (here: "
            f"only they declare it, so it is computed twice); {NO_RULE}: everything is quantized",
        ),
    )


@dataclass(frozen=True)
class Verdict:
    """One pair."""

    pair: Pair
    best_part: str
    ratio: float
    """Median time of the pair by that of its better part; above 1 the pair is slower."""
    lowest: float
    highest: float
    """Of single repeats."""
    allowed: float

    @property
    def is_slower(self) -> bool:
        return self.ratio > self.allowed


def durations(rounds: Sequence[summary.Round], variant: str) -> dict[int, float]:
    """Repeat -> seconds for the whole load; rounds that were cut off or had errors tell nothing."""
    return {
        one.repeat: one.duration_s
        for one in rounds
        if one.variant == variant and one.is_complete and not any(record.error for record in one.records)
    }


def noise(rounds: Sequence[summary.Round]) -> float:
    """What a repeat differs from the median of its variant, relatively: the P95 over all variants."""
    differences = []
    for variant in dict.fromkeys(one.variant for one in rounds):
        found = durations(rounds, variant)
        if len(found) > 1:
            middle = statistics.median(found.values())
            differences += [abs(value / middle - 1) for value in found.values()]
    return max(LEAST_NOISE, summary.percentile(differences, 95) or 0.0)


def judge(rounds: Sequence[summary.Round], wanted: Sequence[Pair]) -> list[Verdict]:
    """Those of which the pair and both parts were measured."""
    allowed = 1 + 2 * noise(rounds)
    verdicts = []
    for pair in wanted:
        together = durations(rounds, pair.name)
        parts = {name: durations(rounds, name) for name in pair.parts}
        if not together or not all(parts.values()):
            continue
        best = min(parts, key=lambda name: statistics.median(parts[name].values()))
        ratio = statistics.median(together.values()) / statistics.median(parts[best].values())
        singles = [together[repeat] / parts[best][repeat] for repeat in together if repeat in parts[best]]
        verdicts.append(
            Verdict(pair, best, ratio, min(singles, default=ratio), max(singles, default=ratio), allowed)
        )
    return verdicts
