"""Who holds which block of the KV cache. Pure bookkeeping, no torch, no bytes.

A block is `block_size_tokens` slots; slot = block id x block size + offset, so that everything below
this module sees plain slots. Blocks are fixed objects: nothing makes a new one, and every block is at any
time one of three: free; held by one or more sequences; or cached, which is findable and held by nobody.
Cached blocks are evicted when free ones run out, or when they are more than their share (`prefix_cache`).

Every call takes O(1) or O(log n) for each block it names; nothing visits the whole pool but `forget_all`,
`findable` and `check_integrity`, which must hold after every call.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from firsttoken_runtime.cache import prefix_cache
from firsttoken_runtime.cache.block import Block as Block
from firsttoken_runtime.cache.block import Evicted as Evicted
from firsttoken_runtime.cache.formats import FORMATS, Counts, Format
from firsttoken_runtime.cache.prefix_cache import Caching as Caching


class Pool:
    """A fixed number of blocks of each format. Without `caching` nothing is ever findable."""

    def __init__(
        self,
        num_full: int,
        block_size_tokens: int,
        *,
        num_quantized: int = 0,
        caching: Caching | None = None,
    ) -> None:
        assert min(num_full, num_quantized) >= 0, (num_full, num_quantized)
        assert num_full + num_quantized > 0, "no blocks"
        assert block_size_tokens > 0, block_size_tokens
        self.block_size_tokens = block_size_tokens
        self.totals = Counts(num_full, num_quantized)
        self.num_extra_holds = 0
        """Holds beyond the first of each block: what sharing saves."""
        self._blocks = [Block(block_id, self.format_of(block_id)) for block_id in range(self.totals.total)]
        self._free = tuple(deque(block for block in self._blocks if block.fmt is fmt) for fmt in Format)
        self._cache = prefix_cache.PrefixCache(self._blocks, self.totals)
        self.set_caching(caching)

    # How many

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def free(self) -> Counts:
        return Counts(*map(len, self._free))

    @property
    def cached(self) -> Counts:
        """Findable, held by nobody."""
        return self._cache.cached

    @property
    def available(self) -> Counts:
        """What `allocate` can give: free, or evictable."""
        return self.free + self._cache.evictable

    @property
    def num_free(self) -> int:
        return self.free.total

    @property
    def num_cached(self) -> int:
        return self.cached.total

    @property
    def num_used(self) -> int:
        """Held by somebody."""
        return self.num_blocks - self.num_free - self.num_cached

    @property
    def num_findable(self) -> int:
        return len(self._cache.index)

    @property
    def findable_version(self) -> int:
        """Changes whenever a block becomes findable or stops to be."""
        return self._cache.index.version

    @property
    def key_mismatches_total(self) -> int:
        """Hits that were none because the tokens differ; anything but 0 is a fault of ours."""
        return self._cache.index.mismatches_total

    def format_of(self, block_id: int) -> Format:
        return Format.FULL if block_id < self.totals.full else Format.QUANTIZED

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` slots."""
        return -(-num_tokens // self.block_size_tokens)

    # Holding

    def num_available(self, fmt: Format) -> int:
        """`available[fmt]`, for those who ask often."""
        return len(self._free[fmt]) + self._cache.num_evictable(fmt)

    def can_allocate(self, num_blocks: int, fmt: Format = Format.FULL) -> bool:
        return num_blocks <= self.num_available(fmt)

    def allocate(self, num_blocks: int, fmt: Format = Format.FULL) -> list[int]:
        """Ids of `num_blocks` blocks, each held once and findable by nobody. Ask `can_allocate` first."""
        assert self.can_allocate(num_blocks, fmt), (num_blocks, fmt, self.available)
        free = self._free[fmt]
        while len(free) < num_blocks:
            free.append(self._cache.evict(fmt))
        taken = [free.popleft() for _ in range(num_blocks)]
        for block in taken:
            assert block.reference_count == 0, block.block_id
            assert not block.key, block.block_id
            block.reference_count = 1
        return [block.block_id for block in taken]

    def hold(self, block_ids: Iterable[int]) -> None:
        """One more hold on each of these findable blocks: a hit."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            assert block.is_findable, f"block {block_id} is not findable"
            if block.reference_count == 0:
                self._cache.take(block)
            else:
                self.num_extra_holds += 1
            block.reference_count += 1
            block.hits += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Give back one hold on each block; one that nobody holds is cached if it is findable, else free.

        Ids are released in reverse, so that the head of a sequence is reused last.
        """
        for block_id in reversed(list(block_ids)):
            block = self._blocks[block_id]
            assert block.reference_count > 0, f"block {block_id} released twice"
            block.reference_count -= 1
            if block.reference_count:
                self.num_extra_holds -= 1
            elif block.key:
                self._cache.put(block)
            else:
                self._free[block.fmt].append(block)
        self._keep_to_share()

    # Finding

    def find(self, key: bytes, token_ids: Sequence[int]) -> int | None:
        """The block that holds just these tokens under `key`. `hold` it before anything else is allocated."""
        block = self._cache.index.find(key, token_ids)
        return None if block is None else block.block_id

    def publish(self, block_id: int, key: bytes, parent_key: bytes, token_ids: Sequence[int]) -> bool:
        """Make a held block findable, after the forward that filled it.

        False if it stays private: another block has the key already, or nothing is cached.
        """
        block = self._blocks[block_id]
        assert block.reference_count > 0, f"block {block_id} is published by nobody"
        assert len(token_ids) == self.block_size_tokens, "only whole blocks are findable"
        assert not block.key or block.key == key, f"block {block_id} is published under two keys"
        return self._cache.publish(block, key, parent_key, token_ids)

    def findable(self) -> Iterator[Evicted]:
        """Every findable block as if it were evicted, the ends of prompts first; changes nothing."""
        return (block.told() for block in self._cache.index.leaves_first())

    def num_holds(self, block_id: int) -> int:
        return self._blocks[block_id].reference_count

    def is_evictable(self, block_id: int) -> bool:
        """True if it counts as available, and stops to when it is held."""
        return self._cache.is_evictable(self._blocks[block_id])

    def is_findable(self, block_id: int) -> bool:
        return self._blocks[block_id].is_findable

    def is_writable(self, block_id: int) -> bool:
        """True if only its one holder can see what is written."""
        block = self._blocks[block_id]
        return block.reference_count == 1 and not block.is_findable

    def forget_all(self) -> None:
        """Nothing is findable any more, as after a change of the lineage: not an eviction. Pins stay."""
        for block in self._cache.forget_all():
            self._free[block.fmt].append(block)

    # Keeping

    @property
    def on_evict(self) -> Callable[[Evicted], None] | None:
        """Called for each evicted block before it is free. It must not call the pool."""
        return self._cache.on_evict

    @on_evict.setter
    def on_evict(self, callback: Callable[[Evicted], None] | None) -> None:
        self._cache.on_evict = callback

    @property
    def evictions_total(self) -> int:
        return self._cache.evictions_total

    @property
    def caching(self) -> Caching | None:
        return self._cache.caching

    def set_caching(self, caching: Caching | None) -> None:
        """From now on; None = forget everything, pins too. What is over the new share is evicted."""
        if caching is None:
            self.forget_all()
        self._cache.set_caching(caching)
        self._keep_to_share()

    @property
    def cache_share(self) -> float:
        """The part of the blocks that may be cached: at most `Caching.max_fraction`."""
        return self._cache.share

    @cache_share.setter
    def cache_share(self, fraction: float) -> None:
        """What is over it is evicted."""
        self._cache.set_share(fraction)
        self._keep_to_share()

    def pin(self, key: bytes, fmt: Format = Format.FULL) -> bool:
        """Never evict the block of `key`, now or once it is published; its predecessors should be pinned too.

        `fmt`: of the block. False if the room for pins is used up: half of the largest share.
        """
        return self._cache.pin(key, fmt)

    def unpin_all(self) -> None:
        """What was pinned beyond the share is evicted."""
        self._cache.unpin_all()
        self._keep_to_share()

    def is_pinned(self, block_id: int) -> bool:
        return self._blocks[block_id].key in self._cache.pins

    def has_pin(self, key: bytes) -> bool:
        """Whether or not a block has it yet."""
        return key in self._cache.pins

    @property
    def num_pinned(self) -> int:
        """Keys that are pinned, whether or not a block has them yet."""
        return len(self._cache.pins)

    def _keep_to_share(self) -> None:
        for fmt in FORMATS:
            while self._cache.is_over_share(fmt):
                self._free[fmt].append(self._cache.evict(fmt))

    def check_integrity(self, held: Iterable[int] = ()) -> None:
        """Assert that `held` (every hold listed), what is free and what is cached are all blocks."""
        holds = [0] * self.num_blocks
        for block_id in held:
            holds[block_id] += 1
        for block in self._blocks:
            assert block.reference_count == holds[block.block_id], (
                f"block {block.block_id} counts {block.reference_count} holds, {holds[block.block_id]} exist"
            )
        assert self.num_extra_holds == sum(max(count - 1, 0) for count in holds), (
            "shared holds are counted wrong"
        )
        for fmt in Format:
            free_ids = [block.block_id for block in self._free[fmt]]
            assert len(set(free_ids)) == len(free_ids), "a block is on the free list twice"
            assert set(free_ids) == {
                block.block_id
                for block in self._blocks
                if block.fmt is fmt and block.reference_count == 0 and not block.is_findable
            }, "free list and reference counts disagree"
        assert self.num_used == sum(1 for count in holds if count), "a block is lost"
        self._cache.check_integrity()
