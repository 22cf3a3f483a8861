"""Who holds which block of the KV cache, and which can be found again. Pure bookkeeping, no torch, no bytes.

A block is `block_size_tokens` slots; slot = block id x block size + offset, so that everything below
this module sees plain slots. Blocks are fixed objects: nothing makes a new one, and every block is at any
time one of three: free; held by one or more sequences; or cached, which is findable and held by nobody.
Cached blocks are evicted when free ones run out, or when they are more than their share.

Every call takes O(1) or O(log n) a block it names; nothing visits the pool but `check_integrity`, which must
hold after every call, and `forget_all`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from firsttoken_runtime.cache import pins, prefix, slru
from firsttoken_runtime.cache.formats import NO_BLOCKS, Counts, Format

PROTECTING_HITS = 2
"""A block that was found so often is protected."""
PINNED_FRACTION = 0.5
"""Of the largest share of the cache, what pins may keep."""


class Block:
    """One block of the pool. It is findable while it has a key."""

    __slots__ = ("block_id", "fmt", "hits", "key", "parent_key", "reference_count", "token_ids")

    def __init__(self, block_id: int, fmt: Format) -> None:
        self.block_id = block_id
        self.fmt = fmt
        self.reference_count = 0
        self.forget()

    def forget(self) -> None:
        self.key = b""
        self.parent_key = b""
        self.token_ids: tuple[int, ...] = ()
        self.hits = 0


class Evicted(NamedTuple):
    """A block that is not findable any more. Its bytes are there until it is next written."""

    block_id: int
    key: bytes
    parent_key: bytes
    token_ids: tuple[int, ...]
    fmt: Format
    hits: int


@dataclass(frozen=True)
class Caching:
    """How much is kept for later requests."""

    max_fraction: float = 0.5
    """Of the blocks of each format, at most so many are cached."""
    protected_fraction: float = 0.8
    """Of those, at most so many are protected."""
    reserved: Counts = NO_BLOCKS
    """Blocks that pins leave to others: those of the longest sequence, else it could wait for ever."""

    def __post_init__(self) -> None:
        assert 0.0 <= self.max_fraction <= 1.0, self.max_fraction
        assert 0.0 <= self.protected_fraction <= 1.0, self.protected_fraction


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
        self.on_evict: Callable[[Evicted], None] | None = None
        """Called for each evicted block before it is free. It must not call the pool."""
        self.evictions_total = 0
        self.num_extra_holds = 0
        """Holds beyond the first of each block: what sharing saves."""
        self._blocks = [Block(i, self.format_of(i)) for i in range(self.totals.total)]
        self._free: tuple[deque[Block], ...] = tuple(
            deque(block for block in self._blocks if block.fmt is fmt) for fmt in Format
        )
        self._num_cached = [0 for _ in Format]
        self._index = prefix.Index()
        self._evictable = tuple(slru.Slru() for _ in Format)
        self._pins = pins.Pins()
        self._most_cached = Counts()
        self._cache_share = 1.0
        self._caching: Caching | None = None
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
        return Counts(*self._num_cached)

    @property
    def available(self) -> Counts:
        """What `allocate` can give: free, or evictable."""
        return self.free + Counts(*map(len, self._evictable))

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
        return len(self._index)

    @property
    def key_mismatches_total(self) -> int:
        """Hits that were none because the tokens differ; anything but 0 is a fault of ours."""
        return self._index.mismatches_total

    def format_of(self, block_id: int) -> Format:
        return Format.FULL if block_id < self.totals.full else Format.QUANTIZED

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` slots."""
        return -(-num_tokens // self.block_size_tokens)

    # Holding

    def can_allocate(self, num_blocks: int, fmt: Format = Format.FULL) -> bool:
        return num_blocks <= self.available[fmt]

    def allocate(self, num_blocks: int, fmt: Format = Format.FULL) -> list[int]:
        """Ids of `num_blocks` blocks, each held once and findable by nobody. Ask `can_allocate` first."""
        assert self.can_allocate(num_blocks, fmt), (num_blocks, fmt, self.available)
        free = self._free[fmt]
        while len(free) < num_blocks:
            self._evict(fmt)
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
            assert block.key, f"block {block_id} is not findable"
            if block.reference_count == 0:
                self._num_cached[block.fmt] -= 1
                if block_id in self._evictable[block.fmt]:
                    self._evictable[block.fmt].remove(block_id)
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
                self._num_cached[block.fmt] += 1
                if block.key not in self._pins:
                    self._make_evictable(block)
            else:
                self._free[block.fmt].append(block)
        self._keep_to_share()

    # Finding

    def find(self, key: bytes, token_ids: Sequence[int]) -> int | None:
        """The block that holds just these tokens under `key`. `hold` it before anything else is allocated."""
        block = self._index.find(key, token_ids)
        return None if block is None else block.block_id

    def publish(self, block_id: int, key: bytes, parent_key: bytes, token_ids: Sequence[int]) -> bool:
        """Make a held block findable, after the forward that filled it.

        False if it stays private: another block has the key already, or nothing is cached.
        """
        block = self._blocks[block_id]
        assert block.reference_count > 0, f"block {block_id} is published by nobody"
        assert len(token_ids) == self.block_size_tokens, "only whole blocks are findable"
        assert not block.key or block.key == key, f"block {block_id} is published under two keys"
        if self._caching is None or self._index.get(key) is not None:
            return block.key == key
        block.key, block.parent_key, block.token_ids = key, parent_key, tuple(token_ids)
        parent = self._index.add(block)
        if parent is not None:
            self._evictable[parent.fmt].set_inner(parent.block_id, True)
        return True

    def is_findable(self, block_id: int) -> bool:
        return bool(self._blocks[block_id].key)

    def is_writable(self, block_id: int) -> bool:
        """True if only its one holder can see what is written."""
        block = self._blocks[block_id]
        return block.reference_count == 1 and not block.key

    def forget_all(self) -> None:
        """Nothing is findable any more, as after a change of the lineage: not an eviction. Pins stay."""
        for block in self._blocks:
            if block.key:
                if block.reference_count == 0:
                    self._free[block.fmt].append(block)
                block.forget()
        self._num_cached = [0 for _ in Format]
        self._index.clear()
        for evictable in self._evictable:
            evictable.clear()

    # Keeping

    @property
    def caching(self) -> Caching | None:
        return self._caching

    def set_caching(self, caching: Caching | None) -> None:
        """From now on; None = forget everything, pins too. What is over the new share is evicted."""
        self._caching = caching
        if caching is None:
            self.unpin_all()
            self.forget_all()
        else:
            largest = Counts(*(int(caching.max_fraction * total) for total in self.totals))
            left = self.totals - caching.reserved
            self._unpinned(
                self._pins.bound(
                    Counts(
                        *(
                            max(min(int(PINNED_FRACTION * most), rest), 0)
                            for most, rest in zip(largest, left, strict=True)
                        )
                    )
                )
            )
        self._set_most_cached()

    @property
    def cache_share(self) -> float:
        """Of the blocks of each format, the part that may be cached."""
        return min(self._cache_share, self._caching.max_fraction) if self._caching else 0.0

    @cache_share.setter
    def cache_share(self, fraction: float) -> None:
        """Bounded by `Caching.max_fraction`. What is over it is evicted."""
        assert 0.0 <= fraction <= 1.0, fraction
        self._cache_share = fraction
        self._set_most_cached()

    def pin(self, key: bytes, fmt: Format = Format.FULL) -> bool:
        """Never evict the block of `key`, now or once it is published; its predecessors should be pinned too.

        `fmt`: of the block. False if the room for pins is used up: half of the largest share.
        """
        block = self._index.get(key)
        assert block is None or block.fmt is fmt, "a key has one format"
        if not self._pins.add(key, fmt):
            return False
        if block is not None and block.block_id in self._evictable[fmt]:
            self._evictable[fmt].remove(block.block_id)
        return True

    def unpin_all(self) -> None:
        self._unpinned(self._pins.clear())

    def is_pinned(self, block_id: int) -> bool:
        key = self._blocks[block_id].key
        return bool(key) and key in self._pins

    @property
    def num_pinned(self) -> int:
        """Keys that are pinned, whether or not a block has them yet."""
        return len(self._pins)

    # Inside

    def _unpinned(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            block = self._index.get(key)
            if block is not None and block.reference_count == 0:
                self._make_evictable(block)

    def _make_evictable(self, block: Block) -> None:
        self._evictable[block.fmt].add(
            block.block_id,
            is_protected=block.hits >= PROTECTING_HITS,
            is_inner=self._index.has_children(block.key),
        )

    def _set_most_cached(self) -> None:
        self._most_cached = Counts(*(int(self.cache_share * total) for total in self.totals))
        fraction = self._caching.protected_fraction if self._caching else 0.0
        for evictable, most in zip(self._evictable, self._most_cached, strict=True):
            evictable.set_max_protected(int(fraction * most))
        self._keep_to_share()

    def _keep_to_share(self) -> None:
        for fmt in Format:
            while self._num_cached[fmt] > self._most_cached[fmt] and self._evictable[fmt]:
                self._evict(fmt)

    def _evict(self, fmt: Format) -> None:
        """One block becomes free."""
        block_id = self._evictable[fmt].next()
        assert block_id is not None, fmt
        block = self._blocks[block_id]
        assert block.reference_count == 0, block_id
        self._evictable[fmt].remove(block_id)
        parent = self._index.remove(block)
        if parent is not None:
            self._evictable[parent.fmt].set_inner(parent.block_id, False)
        evicted = Evicted(block_id, block.key, block.parent_key, block.token_ids, block.fmt, block.hits)
        block.forget()
        self._num_cached[fmt] -= 1
        self._free[fmt].append(block)
        self.evictions_total += 1
        if self.on_evict is not None:
            self.on_evict(evicted)

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
        self._index.check_integrity()
        assert len(self._index) == sum(1 for block in self._blocks if block.key), "a key without a block"
        for fmt in Format:
            blocks = [block for block in self._blocks if block.fmt is fmt]
            unheld = [block for block in blocks if block.reference_count == 0]
            free_ids = [block.block_id for block in self._free[fmt]]
            assert len(set(free_ids)) == len(free_ids), "a block is on the free list twice"
            assert set(free_ids) == {b.block_id for b in unheld if not b.key}, (
                "free list and reference counts disagree"
            )
            cached = [block for block in unheld if block.key]
            assert self._num_cached[fmt] == len(cached), "cached blocks are counted wrong"
            used = len(blocks) - len(unheld)
            assert self.free[fmt] + self.cached[fmt] + used == self.totals[fmt], "a block is lost"
            evictable = self._evictable[fmt]
            evictable.check_integrity(
                {b.block_id: self._index.has_children(b.key) for b in cached if b.key not in self._pins}
            )
            assert len(cached) <= self._most_cached[fmt] or not evictable, "more is cached than its share"
            assert self._pins.counts[fmt] <= self._pins.most[fmt], "too much is pinned"
