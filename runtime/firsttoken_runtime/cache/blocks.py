"""Who holds which block of the KV cache. Pure bookkeeping, no torch, no bytes.

A block is `block_size_tokens` slots; slot = block id x block size + offset, so that everything below
this module sees plain slots. Blocks are fixed objects: allocation takes one from a free list in O(1)
and never makes a new one. When nothing runs, `check_integrity` must hold.
"""

from collections import deque
from collections.abc import Iterable


class Block:
    """One block of the pool."""

    __slots__ = ("block_id", "reference_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.reference_count = 0


class Pool:
    """A fixed number of blocks, each free or held by one or more sequences."""

    def __init__(self, num_blocks: int, block_size_tokens: int) -> None:
        assert num_blocks > 0, num_blocks
        assert block_size_tokens > 0, block_size_tokens
        self.block_size_tokens = block_size_tokens
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free: deque[Block] = deque(self._blocks)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self._blocks) - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` slots."""
        return -(-num_tokens // self.block_size_tokens)

    def can_allocate(self, num_blocks: int) -> bool:
        return num_blocks <= len(self._free)

    def allocate(self, num_blocks: int) -> list[int]:
        """Ids of `num_blocks` blocks, each held once. Ask `can_allocate` first."""
        assert self.can_allocate(num_blocks), (num_blocks, len(self._free))
        taken = [self._free.popleft() for _ in range(num_blocks)]
        for block in taken:
            assert block.reference_count == 0, block.block_id
            block.reference_count = 1
        return [block.block_id for block in taken]

    def release(self, block_ids: Iterable[int]) -> None:
        """Give back one hold on each block; a block nobody holds is free again.

        Ids are released in reverse, so that the head of a sequence is reused last.
        """
        for block_id in reversed(list(block_ids)):
            block = self._blocks[block_id]
            assert block.reference_count > 0, f"block {block_id} released twice"
            block.reference_count -= 1
            if block.reference_count == 0:
                self._free.append(block)

    def check_integrity(self, held: Iterable[int] = ()) -> None:
        """Assert that the free list and the holds of `held` (every hold listed) account for every block."""
        holds = [0] * self.num_blocks
        for block_id in held:
            holds[block_id] += 1
        free_ids = [block.block_id for block in self._free]
        assert len(set(free_ids)) == len(free_ids), "a block is on the free list twice"
        for block in self._blocks:
            assert block.reference_count == holds[block.block_id], (
                f"block {block.block_id} counts {block.reference_count} holds, {holds[block.block_id]} exist"
            )
        assert set(free_ids) == {b.block_id for b in self._blocks if b.reference_count == 0}, (
            "free list and reference counts disagree"
        )
