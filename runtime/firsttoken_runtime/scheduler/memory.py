"""Which blocks sequences hold, and which are promised to them.

A sequence is admitted when all its known tokens fit, but takes its blocks only as its tokens are
computed: what is allocated is close to what is live. In between they are promised, and a promise
counts as taken; so a prompt that has begun never lacks a block and never needs a victim. A sequence
that was preempted MAX_PREEMPTIONS times is promised all it may ever need, for the rest of its life.
"""

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.sequence import Sequence

WATERMARK_FRACTION = 0.01


class Memory:
    """The pool and its promises."""

    def __init__(self, pool: blocks.Pool) -> None:
        self.pool = pool
        self.promised_blocks = 0

    @property
    def available_blocks(self) -> int:
        """Neither held nor promised."""
        return self.pool.num_free - self.promised_blocks

    def needed_blocks(self, sequence: Sequence, limits: scheduler_limits.Limits) -> int:
        """To admit it."""
        num_tokens = sequence.num_tokens
        if sequence.preemptions >= scheduler_limits.MAX_PREEMPTIONS:
            num_tokens = limits.most_tokens(sequence.num_prompt_tokens, sequence.sampling.max_tokens)
        return self.pool.blocks_for(num_tokens)

    def watermark_blocks(self, num_running: int, limits: scheduler_limits.Limits) -> int:
        """What admission leaves free for those that run. None when nothing runs, or when one block holds the
        longest sequence: then nobody who runs ever needs another."""
        if num_running == 0 or self.pool.block_size_tokens >= limits.max_model_len:
            return 0
        return max(num_running, int(self.pool.num_blocks * WATERMARK_FRACTION))

    def promise(self, sequence: Sequence, num_blocks: int) -> None:
        """Admit a sequence. Ask `available_blocks` first."""
        assert num_blocks <= self.available_blocks, (num_blocks, self.available_blocks)
        assert not sequence.block_table, sequence
        assert sequence.promised_blocks == 0, sequence
        sequence.promised_blocks = num_blocks
        self.promised_blocks += num_blocks

    def can_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """True if its first `num_tokens` tokens have slots or can get them."""
        missing = self.pool.blocks_for(num_tokens) - len(sequence.block_table)
        return missing <= sequence.promised_blocks + self.available_blocks

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Give it the blocks of its first `num_tokens` tokens, promised ones first."""
        missing = self.pool.blocks_for(num_tokens) - len(sequence.block_table)
        if missing <= 0:
            return
        kept = min(missing, sequence.promised_blocks)
        assert missing - kept <= self.available_blocks, sequence
        sequence.promised_blocks -= kept
        self.promised_blocks -= kept
        sequence.block_table += self.pool.allocate(missing)

    def held_blocks(self, sequence: Sequence) -> int:
        """What becomes available when it is released."""
        return len(sequence.block_table) + sequence.promised_blocks

    def release(self, sequence: Sequence) -> None:
        self.promised_blocks -= sequence.promised_blocks
        sequence.promised_blocks = 0
        self.pool.release(sequence.block_table)
        sequence.block_table = []
