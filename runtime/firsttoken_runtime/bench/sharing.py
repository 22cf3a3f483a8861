"""Prompts that begin alike, made from a seed: a system prompt before many questions, and conversations, each
turn of which repeats all turns before it. Pure.

An answer of the model is not part of the next turn: random tokens of the same number stand for it, so that
prompts are the same in every variant, token for token.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken_runtime.bench import lengths, workload
from firsttoken_runtime.bench.workload import SAFE_TOKEN_IDS

FIRST, LATER = "first", "later"
"""Groups: the request that brings a prefix, and those that could find it."""


@dataclass(frozen=True)
class Conversations:
    """How the turns of each are."""

    turns: int
    first_tokens: int
    """Of the first turn, with the system prompt."""
    turn_tokens: int
    """What a turn adds, without the answer before it."""
    output_tokens: int

    @property
    def longest_tokens(self) -> int:
        """The last prompt with its answer."""
        return (
            self.first_tokens
            + (self.turns - 1) * (self.turn_tokens + self.output_tokens)
            + self.output_tokens
        )


def questions(
    generator: random.Random,
    prefix: Sequence[int],
    count: int,
    tails: lengths.Lengths,
    output_tokens: int,
    *,
    group: str = "",
    is_declared: bool = True,
    token_ids: range = SAFE_TOKEN_IDS,
) -> list[workload.Request]:
    """`count` requests that begin with `prefix`. With no `group` the first is `first`, the others `later`."""
    return [
        workload.Request(
            (*prefix, *workload.prompt(generator, tails.draw(generator), token_ids)),
            output_tokens,
            group or (LATER if index else FIRST),
            shared_prefix_tokens=len(prefix) if is_declared else 0,
        )
        for index in range(count)
    ]


def conversation(
    generator: random.Random,
    shape: Conversations,
    *,
    group: str = "",
    token_ids: range = SAFE_TOKEN_IDS,
) -> list[workload.Request]:
    """The turns, in order. With no `group` the first is `first`, the others `later`."""
    tokens = workload.prompt(generator, shape.first_tokens, token_ids)
    requests = [workload.Request(tokens, shape.output_tokens, group or FIRST)]
    for _ in range(shape.turns - 1):
        added = shape.output_tokens + shape.turn_tokens
        tokens = (*tokens, *workload.prompt(generator, added, token_ids))
        requests.append(workload.Request(tokens, shape.output_tokens, group or LATER))
    return requests


def alternating(families: Sequence[Sequence[workload.Request]]) -> list[workload.Request]:
    """The first of each family, then the second of each, and so on."""
    longest = max(len(family) for family in families)
    return [family[index] for index in range(longest) for family in families if index < len(family)]


def open_conversations(
    generator: random.Random, conversations: Sequence[Sequence[workload.Request]], pause_s: float
) -> workload.Lane:
    """Open loop: they start evenly within the first pause; from turn to turn a person pauses for
    three quarters to five quarters of `pause_s`, however long the answer takes."""
    timed = []
    for number, turns in enumerate(conversations):
        at_s = number * pause_s / len(conversations)
        for turn in turns:
            timed.append(replace(turn, arrival_s=at_s))
            at_s += pause_s * generator.uniform(0.75, 1.25)
    timed.sort(key=lambda one: one.arrival_s or 0.0)
    return workload.Lane(tuple(timed), len(timed))
