"""Which blocks sequences hold, and which are promised to them.

A sequence is admitted when all its known tokens fit, but takes its blocks only as its tokens are
computed: what is allocated is close to what is live. In between they are promised, and a promise
counts as taken; so a prompt that has begun never lacks a block and never needs a victim. A sequence
that was preempted MAX_PREEMPTIONS times is promised all it may ever need, for the rest of its life.

Blocks have two formats and each sequence says how many of its first ones are FULL (see `rules`), so
everything is counted per format. Blocks that are found in the cache are held at admission; what they cost
is only what nobody held before.
"""

from collections.abc import Collection, Iterable

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.sequence import Sequence

WATERMARK_FRACTION = 0.01
NONE = Counts()


class Memory:
    """The pool and its promises."""

    def __init__(self, pool: blocks.Pool) -> None:
        self.pool = pool
        self.promised = NONE

    @property
    def is_quantizing(self) -> bool:
        return self.pool.totals.quantized > 0

    @property
    def available(self) -> Counts:
        """Neither held nor promised; cached blocks make way."""
        return self.pool.available - self.promised

    def longest_tokens(self, sequence: Sequence) -> int:
        """As long could a sequence of its layout become if it had the whole pool."""
        full, totals = sequence.num_full_blocks, self.pool.totals
        num_blocks = totals.full if full > totals.full else full + totals.quantized
        return num_blocks * self.pool.block_size_tokens

    def split(self, sequence: Sequence, num_blocks: int) -> Counts:
        """Its first `num_blocks` blocks by format."""
        full = min(num_blocks, sequence.num_full_blocks)
        return Counts(full, num_blocks - full)

    def needed(self, sequence: Sequence, limits: scheduler_limits.Limits) -> Counts:
        """All blocks it must have, or be promised, to be admitted."""
        num_tokens = sequence.num_tokens
        if sequence.preemptions >= scheduler_limits.MAX_PREEMPTIONS:
            num_tokens = limits.most_tokens(sequence.num_prompt_tokens, sequence.sampling.max_tokens)
        return self.split(sequence, self.pool.blocks_for(num_tokens))

    def cost(self, needed: Counts, found: Iterable[int]) -> Counts:
        """What of `available` goes with its admission when the blocks `found` are held."""
        full, quantized = needed
        for block_id in found:
            if not self.pool.is_evictable(block_id):
                if self.pool.format_of(block_id) is Format.FULL:
                    full -= 1
                else:
                    quantized -= 1
        return Counts(full, quantized)

    def watermark(self, num_running: int, limits: scheduler_limits.Limits) -> Counts:
        """What admission leaves free for those that run. None when nothing runs, or when one block holds the
        longest sequence: then nobody who runs ever needs another. Output is quantized where that is on."""
        if num_running == 0 or self.pool.block_size_tokens >= limits.max_model_len:
            return NONE
        fmt = Format.QUANTIZED if self.is_quantizing else Format.FULL
        return Counts.of(fmt, max(num_running, int(self.pool.totals[fmt] * WATERMARK_FRACTION)))

    def hold(self, sequence: Sequence, found: list[int]) -> None:
        """Its first blocks are these, which the cache has; from now on nobody can evict them."""
        assert not sequence.block_table, sequence
        self.pool.hold(found)
        sequence.block_table = list(found)

    def promise(self, sequence: Sequence, needed: Counts) -> None:
        """Admit a sequence. Ask `cost` first; what it holds already counts as given."""
        missing = needed - self.split(sequence, len(sequence.block_table))
        assert missing.fits(self.available), (missing, self.available)
        assert sequence.promised == NONE, sequence
        sequence.promised = missing
        self.promised += missing

    def can_take_block(self, sequence: Sequence) -> bool:
        """True if it can have one block more."""
        fmt = sequence.format_of(len(sequence.block_table))
        return sequence.promised[fmt] > 0 or self._num_available(fmt) > 0

    def take_block(self, sequence: Sequence) -> None:
        """Give it one block more, which is what an answer needs; a promised one if it has any."""
        fmt = sequence.format_of(len(sequence.block_table))
        if sequence.promised[fmt] > 0:
            kept = Counts.of(fmt, 1)
            sequence.promised -= kept
            self.promised -= kept
        else:
            assert self._num_available(fmt) > 0, sequence
        sequence.block_table += self.pool.allocate(1, fmt)

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Give it the blocks of its first `num_tokens` tokens, promised ones first."""
        missing = self._missing(sequence, num_tokens)
        if missing.total <= 0:
            return
        promised = sequence.promised
        kept = Counts(min(missing.full, promised.full), min(missing.quantized, promised.quantized))
        assert (missing - kept).fits(self.available), sequence
        sequence.promised = promised - kept
        self.promised -= kept
        for fmt in Format:
            if missing[fmt]:
                sequence.block_table += self.pool.allocate(missing[fmt], fmt)

    def freed(self, sequence: Sequence, kept: Collection[int] = ()) -> Counts:
        """What becomes available when it is released: not what others hold too, or what is pinned or kept."""
        pool, (full, quantized) = self.pool, sequence.promised
        for block_id in sequence.block_table:
            if pool.num_holds(block_id) == 1 and not pool.is_pinned(block_id) and block_id not in kept:
                if pool.format_of(block_id) is Format.FULL:
                    full += 1
                else:
                    quantized += 1
        return Counts(full, quantized)

    def release(self, sequence: Sequence) -> None:
        self.promised -= sequence.promised
        sequence.promised = NONE
        self.pool.release(sequence.block_table)
        sequence.block_table = []

    def _num_available(self, fmt: Format) -> int:
        return self.pool.num_available(fmt) - self.promised[fmt]

    def _missing(self, sequence: Sequence, num_tokens: int) -> Counts:
        held, wanted = len(sequence.block_table), self.pool.blocks_for(num_tokens)
        if wanted <= held:
            return NONE
        return self.split(sequence, wanted) - self.split(sequence, held)
