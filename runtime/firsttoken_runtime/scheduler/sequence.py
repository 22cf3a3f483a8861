"""One sequence on its way through the engine. Mutable: owned by the scheduler."""

import sys

from firsttoken_runtime import core
from firsttoken_runtime.cache import keys
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.scheduler import rules
from firsttoken_runtime.scheduler.classes import RequestClass
from firsttoken_runtime.scheduler.step import Committed, ScheduledStep, Work

__all__ = ["Committed", "ScheduledStep", "Sequence", "Work"]

Rank = tuple[int, int, int, float, float, int]
"""Place in the line of prompts, smallest first; see `order`."""
NEVER = sys.maxsize
"""More tokens than any sequence has."""
Place = tuple[int, float, int]
"""Place among those that run: class, arrival, id."""


class Sequence:
    """A prompt and its answer so far."""

    def __init__(
        self,
        sequence_id: int,
        prompt_token_ids: list[int],
        sampling: core.SamplingParams,
        arrival_s: float,
        stop_ids: frozenset[int] = frozenset(),
        queued_at_s: float = 0.0,
        *,
        request_class: str = "",
        priority: int = 0,
        expected_output_tokens: int | None = None,
        cache_salt: str = "",
        shared_prefix_tokens: int = 0,
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
        self.promised = Counts()
        """Blocks it does not hold yet but is sure to get; see `memory`."""
        self.preemptions = 0

        self.cache_salt = cache_salt
        """What is cached under another salt is not found."""
        self.shared_prefix_tokens = shared_prefix_tokens
        """Declared by the client or the server; see `rules`."""
        self.num_full_blocks = rules.ALL_BLOCKS
        """So many of its first blocks are FULL, the others QUANTIZED."""
        self.chain: keys.Chain | None = None
        """Keys of its blocks under the lineage in force; None until it is laid out."""
        self.num_published_blocks = 0
        """Of its first blocks, those that were given to the cache or came from there."""
        self.publish_at_tokens = NEVER
        """So many computed tokens fill the next block that can be published."""
        self.expected_cached_tokens = 0
        """While it waits: what will be found, as far as was known when it was queued."""
        self.was_admitted = False
        self.cached_tokens_by_tier = {"device": 0, "host": 0}
        """What was found at its first admission."""
        self.owed_tokens = 0
        """Of its known tokens, those that were computed, lost and not computed again yet."""
        self.followers_rank: Rank | None = None
        """The best rank of those that wait for what it computes; it is ranked no worse."""
        self.stalled_steps = 0
        self.passed_over_since_s: float | None = None
        """When another was first admitted before it for the sake of affinity."""

        self.request_class = request_class
        self.priority = priority
        self.expected_output_tokens = expected_output_tokens
        self.class_in_force = RequestClass()
        """What `request_class` means now; one lower when `is_lowered`."""
        self.is_lowered = False
        self.is_switched = False
        """True from when a switch took its blocks until its known tokens are computed again."""
        self.is_returning = False
        """True from when it lost its blocks until its known tokens are computed again."""
        self.rank: Rank = (0, 0, 0, 0.0, 0.0, 0)
        self.place: Place = (0, 0.0, 0)

        self.waiting_since_s = arrival_s
        """Arrival, or when it last lost its blocks."""
        self.last_token_at_s = 0.0
        self.queued_at_s = queued_at_s or arrival_s
        self.scheduled_at_s = 0.0
        """When it was first given tokens; 0 = not yet. Stays as it is when it is preempted."""
        self.loaded_at_s = 0.0
        """When its blocks of the host tier were in place; 0 = it had none."""
        self.prefilled_at_s = 0.0
        """When the forward pass of its last prompt token ended; 0 = not yet."""

    def note_scheduled(self, now: float) -> None:
        """It was given tokens at `now`, of the clock of `arrival_s`."""
        self.scheduled_at_s = self.scheduled_at_s or now

    def note_loaded(self, now: float) -> None:
        self.loaded_at_s = self.loaded_at_s or now

    def note_prefilled(self, now: float) -> None:
        self.prefilled_at_s = self.prefilled_at_s or now

    def first_token_times(self, sampled_s: float) -> core.FirstTokenTimes:
        return core.FirstTokenTimes(
            queued_s=self.queued_at_s,
            scheduled_s=self.scheduled_at_s,
            loaded_s=self.loaded_at_s,
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
    def cached_tokens(self) -> int:
        """What was found at its first admission."""
        return sum(self.cached_tokens_by_tier.values())

    @property
    def backlog_tokens(self) -> int:
        """Known tokens that are still to be computed, as far as is known."""
        return len(self.token_ids) - self.num_computed_tokens - self.expected_cached_tokens

    @property
    def reads_cache(self) -> bool:
        """False where every prompt token must be computed."""
        return self.sampling.prompt_logprobs is None

    def format_of(self, index: int) -> Format:
        """How its block `index` is stored."""
        return Format.FULL if index < self.num_full_blocks else Format.QUANTIZED

    def key(self, index: int) -> bytes:
        """The key of its block `index`, which is whole; hashed once. Only after it was laid out."""
        assert self.chain is not None, self
        if index >= self.num_full_blocks > 0:  # a chain is asked in order where formats change
            self.chain.key(self.token_ids, self.num_full_blocks - 1, Format.FULL)
        return self.chain.key(self.token_ids, index, self.format_of(index))

    @property
    def num_public_blocks(self) -> int:
        """Of a salted one, so many first blocks that are found under every salt: it only reads them. Only
        after it was laid out."""
        assert self.chain is not None, self
        return self.chain.num_public

    @property
    def masks_stop_ids(self) -> bool:
        """True while `min_tokens` forbids the answer to end."""
        return self.num_output_tokens < self.sampling.min_tokens

    def finish_reason(self, token_id: int, max_model_len: int) -> str:
        """Why it ends with its newest token `token_id`; "" while it goes on."""
        num_tokens = len(self.token_ids)
        num_output_tokens = num_tokens - self.num_prompt_tokens
        if token_id in self.stop_ids and num_output_tokens >= self.sampling.min_tokens:
            return "stop"
        if num_output_tokens >= self.sampling.max_tokens or num_tokens >= max_model_len:
            return "length"
        return ""

    def __repr__(self) -> str:
        return f"Sequence({self.sequence_id}, {self.num_computed_tokens}/{self.num_tokens} computed)"
