"""What is known of how fast the engine is, from its last report and from our own books. Pure."""

from dataclasses import dataclass

from firsttoken_api.state import EngineState
from firsttoken_api.step_time import StepTime


@dataclass(slots=True)
class Cadence:
    """What `ttft_estimate` reads, in one place that costs nothing to change."""

    step_time: StepTime | None = None
    chunk_tokens: int = 0
    max_prefill_batch: int = 0
    max_num_seqs: int = 0
    decoding: int = 0
    context_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    running: int = 0
    waiting: int = 0
    kv_tokens_total: int = 0
    kv_tokens_used: int = 0
    tpot_mean_s: float = 0.0

    def hear(self, state: EngineState) -> None:
        """The engine's report."""
        self.step_time = state.step_time
        self.chunk_tokens = state.chunk_tokens
        self.max_prefill_batch = state.max_prefill_batch
        self.max_num_seqs = state.max_num_seqs
        self.context_tokens = state.context_tokens
        self.prefill_tokens_per_s = state.prefill_tokens_per_s
        self.kv_tokens_total = state.kv.blocks_total * state.kv.block_size_tokens
        self.kv_tokens_used = state.kv.blocks_used * state.kv.block_size_tokens
        self.tpot_mean_s = state.tpot_mean_s

    @property
    def is_known(self) -> bool:
        return self.step_time is not None or self.prefill_tokens_per_s > 0

    @property
    def token_s(self) -> float:
        """Between two tokens of an answer, about now."""
        if self.step_time is None:
            return self.tpot_mean_s
        step_s = self.step_time.seconds(0, self.decoding, self.context_tokens)
        # The mean has the prompts in it that steps also computed, but it is of the last minute.
        return max(step_s, self.tpot_mean_s) if self.waiting else step_s

    def cost_s(self, uncached_tokens: int, output_tokens: float) -> float:
        """Seconds of the engine's time that a request takes beside others."""
        if self.step_time is None:
            rate = self.prefill_tokens_per_s
            return uncached_tokens / rate if rate > 0 else 1.0
        context = output_tokens * uncached_tokens * self.step_time.per_context_token_s
        prefill = uncached_tokens * self.step_time.per_prefill_token_s
        return max(prefill + output_tokens * self.step_time.per_decode_s + context, 1e-6)
