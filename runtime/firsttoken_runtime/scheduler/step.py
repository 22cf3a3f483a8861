"""What one step computes and what it gave: the scheduler's words to the runner and the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from firsttoken_runtime import core

if TYPE_CHECKING:
    from firsttoken_runtime.scheduler.sequence import Sequence


class Work(NamedTuple):
    """The tokens of one sequence in one step: `first_token .. first_token + num_tokens`.

    A tuple because a step makes hundreds of them.
    """

    sequence: Sequence
    first_token: int
    num_tokens: int
    samples: bool
    """True when the last token is computed, so that the step yields the next one."""


class Save(NamedTuple):
    """An evicted block to be copied to the host tier, before anything is written over it."""

    block_id: int
    host_slot: int


class Load(NamedTuple):
    """A block to be copied from the host tier, before it is read."""

    host_slot: int
    block_id: int


@dataclass(frozen=True)
class ScheduledStep:
    """What one step computes. `decodes` are rows of one token and come first in the batch.

    Before that all `saves` are made, then all `loads`, whether or not the step has any work.
    """

    number: int
    decodes: tuple[Work, ...] = ()
    prefills: tuple[Work, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    saves: tuple[Save, ...] = ()
    loads: tuple[Load, ...] = ()

    @cached_property
    def work(self) -> tuple[Work, ...]:
        return self.decodes + self.prefills

    @property
    def num_prefill_tokens(self) -> int:
        return sum(work.num_tokens for work in self.prefills)

    @property
    def num_tokens(self) -> int:
        return len(self.decodes) + self.num_prefill_tokens


@dataclass(frozen=True)
class Committed:
    """What a step gave: new tokens, and the sequences that ended without one (`max_tokens` 0)."""

    tokens: list[core.Token]
    ended: list[int]


class Draft:
    """A step while it is put together. What was given can be taken back, with its budget."""

    def __init__(self, number: int, budget_tokens: int) -> None:
        self.number = number
        self.budget_tokens = budget_tokens
        """Tokens that are still to be given."""
        self.decodes: dict[int, Work] = {}
        self.prefills: dict[int, Work] = {}
        self.preempted: list[Sequence] = []

    def add_decode(self, sequence: Sequence) -> None:
        self.decodes[sequence.sequence_id] = Work(sequence, sequence.num_computed_tokens, 1, True)
        self.budget_tokens -= 1

    def add_prefill(self, sequence: Sequence, num_tokens: int) -> None:
        """Give a prompt `num_tokens`, on top of what it got in this step."""
        given = self.prefills.get(sequence.sequence_id)
        chunk = num_tokens + (given.num_tokens if given else 0)
        first = sequence.num_computed_tokens
        is_last = first + chunk == sequence.num_tokens
        samples = is_last and sequence.sampling.max_tokens > 0
        self.prefills[sequence.sequence_id] = Work(sequence, first, chunk, samples)
        self.budget_tokens -= num_tokens

    def withdraw(self, victim: Sequence) -> int:
        """Take back what a victim was given, so that others can have it. Returns the tokens."""
        assert victim.sequence_id not in self.prefills, "a prompt with tokens in this step is no victim"
        refunded = 1 if self.decodes.pop(victim.sequence_id, None) else 0
        self.budget_tokens += refunded
        self.preempted.append(victim)
        return refunded

    def finished(self, saves: tuple[Save, ...] = (), loads: tuple[Load, ...] = ()) -> ScheduledStep:
        return ScheduledStep(
            self.number,
            tuple(self.decodes.values()),
            tuple(self.prefills.values()),
            tuple(self.preempted),
            saves,
            loads,
        )
