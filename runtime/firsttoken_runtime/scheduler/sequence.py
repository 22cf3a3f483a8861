"""One sequence on its way through the engine, and what happens to it in one step."""

from dataclasses import dataclass

from firsttoken_runtime import core


class Sequence:
    """A prompt and its answer so far. Mutable: owned by the scheduler."""

    def __init__(
        self,
        sequence_id: int,
        prompt_token_ids: list[int],
        sampling: core.SamplingParams,
        arrival_s: float,
        stop_ids: frozenset[int] = frozenset(),
        queued_at_s: float = 0.0,
    ) -> None:
        self.sequence_id = sequence_id
        self.sampling = sampling
        self.arrival_s = arrival_s
        self.stop_ids = stop_ids
        """EOS ids, unless ignored, and the request's own."""
        self.num_prompt_tokens = len(prompt_token_ids)
        self.token_ids = list(prompt_token_ids)
        """Prompt and output; only ever appended to."""
        self.num_computed_tokens = 0
        """Tokens whose KV is in the cache."""
        self.block_table: list[int] = []
        self.preemptions = 0
        self.queued_at_s = queued_at_s or arrival_s
        self.scheduled_at_s = 0.0
        """When it was first given tokens; 0 = not yet. Stays as it is when it is preempted."""
        self.prefilled_at_s = 0.0
        """When the forward pass of its last prompt token ended; 0 = not yet."""

    def note_scheduled(self, now: float) -> None:
        """It was given tokens at `now`, of the clock of `arrival_s`."""
        self.scheduled_at_s = self.scheduled_at_s or now

    def note_prefilled(self, now: float) -> None:
        self.prefilled_at_s = self.prefilled_at_s or now

    def first_token_times(self, sampled_s: float) -> core.FirstTokenTimes:
        return core.FirstTokenTimes(
            queued_s=self.queued_at_s,
            scheduled_s=self.scheduled_at_s,
            prefilled_s=self.prefilled_at_s,
            sampled_s=sampled_s,
        )

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """True when only the newest token is left to compute."""
        return self.num_output_tokens > 0 and self.num_uncomputed_tokens == 1

    @property
    def masks_stop_ids(self) -> bool:
        """True while `min_tokens` forbids the answer to end."""
        return self.num_output_tokens < self.sampling.min_tokens

    @property
    def order(self) -> tuple[float, int]:
        """First come, first served; ids break ties."""
        return (self.arrival_s, self.sequence_id)

    def __repr__(self) -> str:
        return f"Sequence({self.sequence_id}, {self.num_computed_tokens}/{self.num_tokens} computed)"


@dataclass(frozen=True)
class Work:
    """The tokens of one sequence in one step: `first_token .. first_token + num_tokens`."""

    sequence: Sequence
    first_token: int
    num_tokens: int
    samples: bool
    """True when the last token is computed, so that the step yields the next one."""


@dataclass(frozen=True)
class Committed:
    """What a step gave: new tokens, and the sequences that ended without one (`max_tokens` 0)."""

    tokens: list[core.Token]
    ended: list[int]


@dataclass(frozen=True)
class ScheduledStep:
    """What one step computes. `decodes` are rows of one token and come first in the batch."""

    number: int
    decodes: tuple[Work, ...] = ()
    prefills: tuple[Work, ...] = ()
    preempted: tuple[Sequence, ...] = ()

    @property
    def work(self) -> tuple[Work, ...]:
        return self.decodes + self.prefills

    @property
    def num_tokens(self) -> int:
        return sum(work.num_tokens for work in self.work)
