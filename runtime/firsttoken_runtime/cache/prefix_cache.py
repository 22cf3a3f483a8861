"""The findable blocks of a pool: which of them nobody holds, how many may be kept, and who is evicted.

It knows blocks, not sequences: `blocks.Pool` says when a block is first held and last released, and takes
back what is evicted. Nothing here visits more than the blocks it is asked about, `forget_all` aside.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from firsttoken_runtime.cache import pins, prefix, slru
from firsttoken_runtime.cache.block import Block, Evicted
from firsttoken_runtime.cache.formats import NO_BLOCKS, Counts, Format

PROTECTING_HITS = 2
"""A block that was found so often is protected."""
PINNED_FRACTION = 0.5
"""Of the largest share of the cache, what pins may keep."""


@dataclass(frozen=True)
class Caching:
    """How much is kept for later requests."""

    max_fraction: float = 0.5
    """Of the blocks at most so many are cached. Where there are QUANTIZED blocks it bounds only those:
    FULL ones are then few, and hold nothing but prompts that were declared shared."""
    protected_fraction: float = 0.8
    """Of those, at most so many are protected."""
    reserved: Counts = NO_BLOCKS
    """Blocks that pins leave to others: those of the longest sequence, else it could wait for ever."""

    def __post_init__(self) -> None:
        assert 0.0 <= self.max_fraction <= 1.0, self.max_fraction
        assert 0.0 <= self.protected_fraction <= 1.0, self.protected_fraction


class PrefixCache:
    """Of one pool. Without `Caching` nothing is ever findable."""

    def __init__(self, blocks: Sequence[Block], totals: Counts) -> None:
        self._blocks = blocks
        self._totals = totals
        self.index = prefix.Index()
        self.pins = pins.Pins()
        self.evictions_total = 0
        self.on_evict: Callable[[Evicted], None] | None = None
        self.caching: Caching | None = None
        self._share = 1.0
        self._most_cached = NO_BLOCKS
        self._num_cached = [0 for _ in Format]
        self._evictable = tuple(slru.Slru() for _ in Format)

    @property
    def cached(self) -> Counts:
        """Findable, held by nobody."""
        return Counts(*self._num_cached)

    @property
    def evictable(self) -> Counts:
        """Of those, the ones that are not pinned."""
        return Counts(*map(len, self._evictable))

    def num_evictable(self, fmt: Format) -> int:
        return len(self._evictable[fmt])

    def publish(self, block: Block, key: bytes, parent_key: bytes, token_ids: Sequence[int]) -> bool:
        """Make a held block findable; False if it stays private."""
        if self.caching is None or self.index.get(key) is not None:
            return block.key == key
        block.name(key, parent_key, token_ids)
        parent = self.index.add(block)
        if parent is not None:
            block.extends_hit = parent.hits > 0 or parent.extends_hit
            if parent.reference_count == 0:
                self._evictable[parent.fmt].set_inner(parent.block_id, True)
        return True

    def put(self, block: Block) -> None:
        """Nobody holds this findable block any more."""
        self._num_cached[block.fmt] += 1
        if block.key not in self.pins:
            self._make_evictable(block)

    def take(self, block: Block) -> None:
        """Somebody holds it again."""
        self._num_cached[block.fmt] -= 1
        if self.is_evictable(block):
            self._evictable[block.fmt].remove(block.block_id)

    def is_evictable(self, block: Block) -> bool:
        return block.block_id in self._evictable[block.fmt]

    def is_over_share(self, fmt: Format) -> bool:
        """True if one is to be evicted because too many are kept."""
        return self._num_cached[fmt] > self._most_cached[fmt] and bool(self._evictable[fmt])

    def evict(self, fmt: Format) -> Block:
        """Forget the block whose turn it is, and hand it out."""
        block_id = self._evictable[fmt].next()
        assert block_id is not None, f"nothing to evict of {fmt!r}"
        block = self._blocks[block_id]
        assert block.reference_count == 0, block_id
        self.take(block)
        parent = self.index.remove(block)
        if parent is not None:
            self._evictable[parent.fmt].set_inner(parent.block_id, False)
        evicted = block.told()
        block.forget()
        self.evictions_total += 1
        if self.on_evict is not None:
            self.on_evict(evicted)
        return block

    def forget_all(self) -> list[Block]:
        """-> those that nobody held."""
        findable = [block for block in self._blocks if block.is_findable]
        for block in findable:
            block.forget()
        self._num_cached = [0 for _ in Format]
        self.index.clear()
        for evictable in self._evictable:
            evictable.clear()
        return [block for block in findable if block.reference_count == 0]

    # How much is kept

    @property
    def share(self) -> float:
        return min(self._share, self.caching.max_fraction) if self.caching else 0.0

    def set_share(self, fraction: float) -> None:
        assert 0.0 <= fraction <= 1.0, fraction
        self._share = fraction
        self._set_bounds()

    def set_caching(self, caching: Caching | None) -> None:
        self.caching = caching
        most_pinned = NO_BLOCKS
        if caching is not None:
            largest = self._part(caching.max_fraction)
            left = self._totals - caching.reserved
            most_pinned = Counts(
                *(
                    max(min(int(PINNED_FRACTION * most), rest), 0)
                    for most, rest in zip(largest, left, strict=True)
                )
            )
        self._set_bounds()
        self._unpinned(self.pins.bound(most_pinned))

    def pin(self, key: bytes, fmt: Format) -> bool:
        block = self.index.get(key)
        assert block is None or block.fmt is fmt, "a key has one format"
        if not self.pins.add(key, fmt):
            return False
        if block is not None and self.is_evictable(block):
            self._evictable[fmt].remove(block.block_id)
        return True

    def unpin_all(self) -> None:
        self._unpinned(self.pins.clear())

    def _unpinned(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            block = self.index.get(key)
            if block is not None and block.reference_count == 0:
                self._make_evictable(block)

    def _make_evictable(self, block: Block) -> None:
        self._evictable[block.fmt].add(
            block.block_id,
            is_protected=block.hits >= PROTECTING_HITS,
            is_inner=self.index.has_children(block.key),
        )

    def _set_bounds(self) -> None:
        protected = self.caching.protected_fraction if self.caching else 0.0
        self._most_cached = self._part(self.share) if self.caching else NO_BLOCKS
        for evictable, most in zip(self._evictable, self._most_cached, strict=True):
            evictable.set_max_protected(int(protected * most))

    def _part(self, fraction: float) -> Counts:
        """So much of the blocks, as `Caching.max_fraction` says it."""
        full, quantized = self._totals
        return Counts(full if quantized else int(fraction * full), int(fraction * quantized))

    def check_integrity(self) -> None:
        """Assert that every findable block is counted and can be evicted when it may be."""
        self.index.check_integrity(block for block in self._blocks if block.is_findable)
        for fmt in Format:
            cached = [
                block
                for block in self._blocks
                if block.fmt is fmt and block.is_findable and block.reference_count == 0
            ]
            assert self._num_cached[fmt] == len(cached), "cached blocks are counted wrong"
            self._evictable[fmt].check_integrity(
                {b.block_id: self.index.has_children(b.key) for b in cached if b.key not in self.pins}
            )
            assert not self.is_over_share(fmt), "more is cached than its share"
            assert self.pins.counts[fmt] <= self.pins.most[fmt], "too much is pinned"
