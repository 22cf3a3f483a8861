"""What can never be served is refused at once, with the reason; it must not wait for ever."""

from firsttoken_runtime import core
from firsttoken_runtime.scheduler import limits as scheduler_limits


def refusal(
    num_prompt_tokens: int,
    sampling: core.SamplingParams,
    limits: scheduler_limits.Limits,
    pool_tokens: int,
) -> str | None:
    """The reason why a sequence can never run, or None. `pool_tokens`: slots of the whole pool."""
    if num_prompt_tokens == 0:
        return "the prompt has no tokens"
    if sampling.max_tokens < 0:
        return f"max_tokens is {sampling.max_tokens}, it cannot be negative"
    least_output = min(sampling.max_tokens, 1)
    if num_prompt_tokens + least_output > limits.max_model_len:
        return (
            f"the prompt has {num_prompt_tokens} tokens; with at least {least_output} tokens of output it is "
            f"longer than the longest context of {limits.max_model_len} tokens"
        )
    needed = limits.most_tokens(num_prompt_tokens, sampling.max_tokens)
    if needed > pool_tokens:
        return f"prompt and output may need {needed} tokens of KV cache; all of it holds {pool_tokens}"
    return None
