"""How long a step of an engine takes, as a linear function of what it computes. Pure.

The engine fits it to its own steps (`firsttoken_runtime.scheduler.step_fit`) and reports it; who estimates a
first token (`ttft_estimate`) and who counts replicas read the same four numbers.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step = fixed + prompt tokens, decoding sequences and their context, each at its price."""

    fixed_s: float = 0.0
    per_prefill_token_s: float = 0.0
    per_decode_s: float = 0.0
    per_context_token_s: float = 0.0
    """Per token of context that the decoding sequences read, all together."""

    def __post_init__(self) -> None:
        for name in ("fixed_s", "per_prefill_token_s", "per_decode_s", "per_context_token_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} of a step time is {getattr(self, name)}, it cannot be negative")

    def seconds(self, prefill_tokens: float, decoding: float, context_tokens: float) -> float:
        """Of one step."""
        return (
            self.fixed_s
            + self.per_prefill_token_s * prefill_tokens
            + self.per_decode_s * decoding
            + self.per_context_token_s * context_tokens
        )

    def prefill_tokens_per_s(self, chunk_tokens: float, decoding: float, context_tokens: float) -> float:
        """While every step has a full chunk of prompts beside those that decode. 0: steps cost nothing, that
        is, nothing is known."""
        step_s = self.seconds(chunk_tokens, decoding, context_tokens)
        return chunk_tokens / step_s if step_s > 0 else 0.0
