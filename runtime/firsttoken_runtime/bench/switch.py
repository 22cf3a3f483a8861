"""`bench switch`: the layout of the KV changes while sequences run. Pure.

From outside: sixteen streams run, flags are put, and each stream goes on after its KV has been computed
again. The pause is from sending the flags to the answer that they are in force; the next step is of the new
layout. A gap is what a reader of a stream sees. Prompts are pieces of text, so that answers are text too: of
random tokens a model makes bytes that are no characters, which a server holds back.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import bars, experiment, lengths, workload

STREAMS = 16
MOST_PAUSE_S = 1.0
GAP_FACTOR = 1.25
"""Of the time in which the recomputed tokens could be computed at the measured prefill rate."""
PIECES_BETWEEN = 8
"""Of every stream before a switch, and again before the next one."""
RATE_PROMPTS, RATE_TOKENS = 3, 384
PROMPT_TOKENS = lengths.Uniform(64, 192)
OUTPUT_TOKENS = 160
PIECES_SEEN = 4
"""Of a stream after the flags were sent: the gap is the longest before one of them."""
FLAGS = ("paged-kv", "continuous-batching", "chunked-prefill", "prefix-cache", "priority")


@dataclass(frozen=True)
class Switch:
    """One switch under load."""

    name: str
    repeat: int
    running: int
    """Streams that had begun and not ended when the flags were sent."""
    pause_s: float
    gaps_s: tuple[float, ...]
    """Of each of these streams."""
    recomputed_tokens: int
    """Prompt tokens and pieces of text of these streams: what had to be computed again."""
    prefill_tokens_per_s: float
    """Of prompts alone, under the flags that were put."""
    engine_pause_s: float | None = None
    engine_gap_s: float | None = None
    """As the engine measured them; None: it does not say."""

    @property
    def bound_s(self) -> float:
        return GAP_FACTOR * self.recomputed_tokens / self.prefill_tokens_per_s

    @property
    def gap_by_bound(self) -> float | None:
        return max(self.gaps_s) / self.bound_s if self.gaps_s and self.bound_s else None


@dataclass(frozen=True)
class Streams:
    """The streams of one repeat, when all is over."""

    repeat: int
    asked: int
    failed: int
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Two flag sets, and the streams that run while one takes the place of the other."""

    before: experiment.Variant
    after: experiment.Variant
    server: experiment.ServerNeeds

    @property
    def named(self) -> dict[str, experiment.Variant]:
        return {f"to {self.after.name}": self.after, f"back to {self.before.name}": self.before}


def plan(flag: str) -> Plan:
    return Plan(
        experiment.Variant("16 bit", FLAGS),
        experiment.Variant(flag, (*FLAGS, flag)),
        experiment.ServerNeeds(
            max_model_len=512, kv_tokens=2 * STREAMS * 352, max_num_seqs=STREAMS, max_prefill_batch=STREAMS
        ),
    )


def streams(text: Sequence[int], seed: int, repeat: int) -> list[workload.Request]:
    """`text`: token ids, of which each prompt is a piece."""
    generator = random.Random(f"{seed}/{repeat}")
    lengths_drawn = [PROMPT_TOKENS.draw(generator) for _ in range(STREAMS)]
    return [workload.Request(_piece(text, generator, tokens), OUTPUT_TOKENS) for tokens in lengths_drawn]


def rate_prompts(text: Sequence[int], seed: int) -> list[workload.Request]:
    generator = random.Random(f"{seed}/rate")
    return [workload.Request(_piece(text, generator, RATE_TOKENS), 1) for _ in range(RATE_PROMPTS)]


def _piece(text: Sequence[int], generator: random.Random, tokens: int) -> tuple[int, ...]:
    start = generator.randrange(len(text) - tokens)
    return tuple(text[start : start + tokens])


def gap_s(pieces_s: Sequence[float], sent_s: float) -> float | None:
    """The longest wait for one of the first pieces of text after the flags were sent; None: there is none,
    or none before them. Pieces of the last old step may still arrive after the answer."""
    after = next((index for index, at_s in enumerate(pieces_s) if at_s > sent_s), None)
    if not after:  # nothing came after, or nothing before
        return None
    last = min(after + PIECES_SEEN, len(pieces_s))
    return max(pieces_s[index] - pieces_s[index - 1] for index in range(after, last))


def judge(switches: Sequence[Switch], ended: Sequence[Streams]) -> list[bars.Verdict]:
    pauses = [one.pause_s for one in switches]
    gaps = [value for one in switches if (value := one.gap_by_bound) is not None]
    running = [float(one.running) for one in switches]
    limits = (
        (
            experiment.Limit("pause until the new flags are in force, longest, s", at_most=MOST_PAUSE_S),
            pauses,
        ),
        (
            experiment.Limit(
                f"longest gap of a stream / ({GAP_FACTOR} x recomputed tokens / measured prefill rate)",
                at_most=1.0,
            ),
            gaps,
        ),
    )
    verdicts = [bars.of_values(limit, max(values, default=None), values) for limit, values in limits]
    fewest = experiment.Limit("streams that ran at a switch, fewest", at_least=STREAMS)
    none = experiment.Limit("streams that failed or ended too early", at_most=0)
    failed = sum(one.failed for one in ended) if ended else None
    return [
        *verdicts,
        bars.of_values(fewest, min(running, default=None), running),
        bars.of_values(none, failed),
    ]
