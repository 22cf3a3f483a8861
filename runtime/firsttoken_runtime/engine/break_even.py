"""From how many tokens on a copy from the host tier is quicker than computing them again. Measured.

A copy costs a fixed part and a part for each block; a prompt costs its tokens over the rate of prefill. On
a slow bus or with a small model computing wins for short texts, on some machines for all. What is timed is
passed in.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

REPEATS = 3
MANY_BLOCKS = 8
PREFILL_TOKENS = 128
_SHORTEST_S = 1e-9
CHEAP_PART = 0.05
"""Of the time that a block takes to compute: what a copy on the mere chance of a hit may take."""


@dataclass(frozen=True)
class BreakEven:
    """What copies cost here."""

    load_s_per_block: float
    """Host to device."""
    fixed_s: float
    """Of one set of copies, however many blocks."""
    block_size_tokens: int
    save_s_per_block: float = 0.0
    """Device to host."""
    prefill_tokens_per_s: float | None = None
    """At the start. None = not measured: then nothing is known to be worth a copy."""

    def worth_it(self, num_tokens: int, prefill_tokens_per_s: float | None = None) -> bool:
        """Whether loading whole blocks of so many tokens is quicker than computing them at that rate."""
        copy_s = self.fixed_s + self._blocks(num_tokens) * self.load_s_per_block
        return copy_s < self._recompute_s(num_tokens, prefill_tokens_per_s)

    def worth_swapping(self, num_tokens: int, prefill_tokens_per_s: float | None = None) -> bool:
        """Whether copying out and in again is, for a sequence that has to give way now."""
        both_s = self.save_s_per_block + self.load_s_per_block
        copy_s = 2 * self.fixed_s + self._blocks(num_tokens) * both_s
        return copy_s < self._recompute_s(num_tokens, prefill_tokens_per_s)

    def is_cheap(self) -> bool:
        """Whether blocks may be saved that nobody has asked for twice. Not known = True."""
        recompute_s = self._recompute_s(self.block_size_tokens, None)
        return recompute_s == 0.0 or self.save_s_per_block <= CHEAP_PART * recompute_s

    def least_tokens(self, prefill_tokens_per_s: float | None = None) -> int | None:
        """The shortest text of whole blocks that is worth a load; None = none is."""
        block_s = self._recompute_s(self.block_size_tokens, prefill_tokens_per_s)
        saved_s = block_s - self.load_s_per_block
        if saved_s <= 0:
            return None
        num_blocks = max(math.floor(self.fixed_s / saved_s), 0)
        while not self.worth_it(num_blocks * self.block_size_tokens, prefill_tokens_per_s):
            num_blocks += 1
        return num_blocks * self.block_size_tokens

    def _blocks(self, num_tokens: int) -> int:
        return num_tokens // self.block_size_tokens

    def _recompute_s(self, num_tokens: int, prefill_tokens_per_s: float | None) -> float:
        rate = prefill_tokens_per_s or self.prefill_tokens_per_s
        return num_tokens / rate if rate else 0.0


def measure(
    load: Callable[[int], None],
    save: Callable[[int], None],
    prefill: Callable[[int], None] | None,
    *,
    block_size_tokens: int,
    most_blocks: int,
    prefill_tokens_per_s: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BreakEven:
    """Time copies of 1 and of several blocks both ways, and a prompt.

    load, save: copy so many blocks, at most `most_blocks`, and return when they have arrived. All saves come
    before the first load, so that blocks get back what they had.
    prefill: compute a prompt of so many tokens. prefill_tokens_per_s: what is known of that without it.
    """
    assert most_blocks >= 1, most_blocks

    def seconds(run: Callable[[int], None], count: int) -> float:
        run(count)  # the first touches memory that was never used
        times = []
        for _ in range(REPEATS):
            start = clock()
            run(count)
            times.append(clock() - start)
        return max(min(times), _SHORTEST_S)

    def cost(run: Callable[[int], None]) -> tuple[float, float]:
        many = min(MANY_BLOCKS, most_blocks)
        one_s, many_s = seconds(run, 1), seconds(run, many)
        per_block_s = many_s / many
        if many > 1:
            # Noise can make the slope nothing or negative; the mean bounds it from above.
            per_block_s = min(max((many_s - one_s) / (many - 1), _SHORTEST_S), per_block_s)
        return per_block_s, max(one_s - per_block_s, 0.0)

    save_s, save_fixed_s = cost(save)
    load_s, load_fixed_s = cost(load)
    return BreakEven(
        load_s_per_block=load_s,
        fixed_s=max(save_fixed_s, load_fixed_s),
        block_size_tokens=block_size_tokens,
        save_s_per_block=save_s,
        prefill_tokens_per_s=(
            PREFILL_TOKENS / seconds(prefill, PREFILL_TOKENS) if prefill else prefill_tokens_per_s
        ),
    )
