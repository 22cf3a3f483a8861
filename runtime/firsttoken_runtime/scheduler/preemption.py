"""Who gives way when a more urgent prompt finds no slot or no blocks, and how often that may happen.

A victim's tokens are computed again, which is work that serves nobody. So preemption for a class is
paid from a credit of RECOMPUTED_SHARE of all tokens computed, with BURST_STEPS full steps in advance: it
costs throughput at most that share. When the credit is spent, the urgent prompt still takes the next
slot that becomes free.
"""

from collections.abc import Collection, Iterable

from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import memory
from firsttoken_runtime.scheduler.sequence import Sequence

RECOMPUTED_SHARE = 0.06
BURST_STEPS = 8


class Credit:
    """Tokens that may be thrown away for the sake of a class."""

    def __init__(self, step_tokens: int) -> None:
        self._most = float(BURST_STEPS * step_tokens)
        self._tokens = self._most

    def earn(self, computed_tokens: int) -> None:
        self._tokens = min(self._tokens + RECOMPUTED_SHARE * computed_tokens, self._most)

    def spend(self, recomputed_tokens: int) -> None:
        """May end below zero: the last victim is not cut in pieces."""
        self._tokens -= recomputed_tokens

    def covers(self, recomputed_tokens: int) -> bool:
        """True while something is left, or when nothing is lost."""
        return recomputed_tokens == 0 or self._tokens > 0


def can_be_victim(sequence: Sequence) -> bool:
    return sequence.preemptions < scheduler_limits.MAX_PREEMPTIONS


def victims(
    last_first: Iterable[Sequence],
    slots: int,
    blocks: Counts,
    kv: memory.Memory,
    credit: Credit,
    kept: Collection[int] = (),
) -> list[Sequence]:
    """The first of `last_first` that together free so many slots and blocks; none if all cannot.

    kept: blocks that whoever comes instead holds as well.
    """
    chosen: list[Sequence] = []
    lost_tokens = 0
    for sequence in last_first:
        if slots <= 0 and blocks.fits(memory.NONE):
            break
        if not can_be_victim(sequence):
            continue
        freed = kv.freed(sequence, kept)
        if slots > 0 or any(freed[fmt] > 0 and blocks[fmt] > 0 for fmt in Format):
            chosen.append(sequence)
            lost_tokens += sequence.num_computed_tokens
            slots -= 1
            blocks -= freed
    if slots > 0 or not blocks.fits(memory.NONE) or not credit.covers(lost_tokens):
        return []
    return chosen
