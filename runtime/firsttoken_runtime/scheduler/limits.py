"""The numbers a scheduler keeps within, and how they follow from options and flags."""

from dataclasses import dataclass

MIN_CHUNK_TOKENS = 64
MAX_PREEMPTIONS = 3
"""After this many a sequence is never a victim again."""


@dataclass(frozen=True)
class Limits:
    """Cold limits and the flags in force."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_batch: int
    continuous_batching: bool = True
    """False: admit only when nothing runs."""
    chunk_tokens: int | None = 512
    """Most prompt tokens of one sequence in a step; None: a prompt is computed in one step."""
    priority: bool = False
    """False: first come, first served, in one class."""
    length_control: bool = False
    """Past the output budget of its class a request is lowered by one class."""
    prefill_only_when_idle: bool = False
    """Prompts are computed in steps without decodes; one that has waited long goes on beside them."""
    tpot_p95_s: float | None = None
    """Objective: prompts get less of each step while tokens come slower than this."""

    in_flight_sharing: bool = True
    """Where prefixes are cached: who has the prefix of one that is being computed waits for it."""
    prefix_affinity_max_wait_s: float | None = None
    """Requests whose prefix is cached come first within their class, each other one waiting at most so much
    longer for that; None: off."""

    max_full_tokens: int | None = None
    """With quantization, the most tokens of a declared prefix that stay in the compute dtype; a constant of
    the flag set. None: half of the longest context."""

    def __post_init__(self) -> None:
        assert self.max_num_batched_tokens >= self.max_num_seqs, "a step must hold one token a sequence"

    @property
    def most_full_tokens(self) -> int:
        """Of a declared prefix, with quantization."""
        return self.max_model_len // 2 if self.max_full_tokens is None else self.max_full_tokens

    @property
    def step_budget_tokens(self) -> int:
        """Tokens of one step. A prompt that may not be cut needs room beside the decodes."""
        if self.chunk_tokens is None:
            return max(self.max_num_batched_tokens, self.max_model_len + self.max_num_seqs)
        return self.max_num_batched_tokens

    def most_tokens(self, num_prompt_tokens: int, max_tokens: int) -> int:
        """The longest a sequence may become."""
        return min(num_prompt_tokens + max_tokens, self.max_model_len)

    def largest_chunk(self, prefill_budget: int, prompts_in_line: int) -> int:
        """Most tokens of one prompt in a step: while another waits, at most half of the budget."""
        if self.chunk_tokens is None:
            return prefill_budget
        share = prefill_budget
        if prompts_in_line > 1:
            share = max(prefill_budget // 2, MIN_CHUNK_TOKENS)
        return min(self.chunk_tokens, share)
