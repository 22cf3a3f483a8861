"""What a step costs before the first one was taken: a few are timed at the start. The work is passed in.

Two prompts of different length give the fixed part and the price of a token, one and several answers the
price of an answer. What context costs shows in longer runs only, and is learned from them (`step_fit`).
"""

import time
from collections.abc import Callable

from firsttoken_api.step_time import StepTime

REPEATS = 2
FEW_TOKENS = 32
MANY_TOKENS = 128
MANY_ROWS = 8


def measure(
    prefill: Callable[[int], None],
    decode: Callable[[int], None],
    *,
    most_tokens: int,
    most_rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTime:
    """prefill, decode: compute a prompt of so many tokens, or the next token of so many answers.

    Half a second on a small machine with a small model. The quickest of a few counts: nothing is quick by
    chance.
    """

    def timed_s(work: Callable[[int], None], amount: int) -> float:
        times = []
        for _ in range(REPEATS):
            start_s = clock()
            work(amount)
            times.append(clock() - start_s)
        return min(times)

    few, many = min(FEW_TOKENS, most_tokens), min(MANY_TOKENS, most_tokens)
    rows = min(MANY_ROWS, most_rows)
    few_s, many_s = timed_s(prefill, few), timed_s(prefill, many)
    one_s, rows_s = timed_s(decode, 1), timed_s(decode, rows)
    per_token_s = (many_s - few_s) / (many - few) if many > few else 0.0
    per_token_s = max(per_token_s, 0.0)
    per_row_s = max((rows_s - one_s) / (rows - 1), 0.0) if rows > 1 else per_token_s
    return StepTime(
        fixed_s=max(few_s - few * per_token_s, one_s - per_row_s, 0.0),
        per_prefill_token_s=per_token_s,
        per_decode_s=per_row_s,
    )
