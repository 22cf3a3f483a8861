"""Which block holds which tokens: the index of findable blocks, and the longest prefix in it.

Pure lookups; who holds a block and what may be evicted is in `blocks`. Children are counted by the key of
their parent, not by its block: a block whose parent was evicted is found again when the parent is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from firsttoken_runtime.cache.block import Block
from firsttoken_runtime.cache.formats import Format

if TYPE_CHECKING:
    from firsttoken_runtime.cache import blocks, keys


class Index:
    """Keys to blocks."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, Block] = {}
        self._num_children: dict[bytes, int] = {}
        self.version = 0
        """Changes with every block that comes or goes: what was not found is looked for again only then."""
        self.mismatches_total = 0
        """Hits whose tokens were others: equal sha256 of different contents, so a fault of ours."""

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, key: bytes) -> Block | None:
        return self._blocks.get(key)

    def find(self, key: bytes, token_ids: Sequence[int]) -> Block | None:
        """The block of `key` if it holds just these tokens."""
        block = self._blocks.get(key)
        if block is None:
            return None
        if block.token_ids != tuple(token_ids):
            self.mismatches_total += 1
            return None
        return block

    def has_children(self, key: bytes) -> bool:
        """True if a findable block comes after it."""
        return key in self._num_children

    def add(self, block: Block) -> Block | None:
        """-> its parent."""
        key, parent_key = block.key, block.parent_key
        assert key not in self._blocks, "a key has two blocks"
        self.version += 1
        self._blocks[key] = block
        self._num_children[parent_key] = self._num_children.get(parent_key, 0) + 1
        return self._blocks.get(parent_key)

    def remove(self, block: Block) -> Block | None:
        """-> its parent, if this was the last child it had."""
        self.version += 1
        known = self._blocks.pop(block.key)
        assert known is block, block.block_id
        count = self._num_children.pop(block.parent_key) - 1
        if count:
            self._num_children[block.parent_key] = count
            return None
        return self._blocks.get(block.parent_key)

    def leaves_first(self) -> list[Block]:
        """All blocks, each after those that come after it in a prompt; visits them all."""
        children: dict[bytes, list[Block]] = {}
        for block in self._blocks.values():
            children.setdefault(block.parent_key, []).append(block)
        order = [block for block in self._blocks.values() if block.parent_key not in self._blocks]
        for block in order:  # grows while it is gone through
            order += children.get(block.key, ())
        return order[::-1]

    def clear(self) -> None:
        self.version += 1
        self._blocks.clear()
        self._num_children.clear()

    def check_integrity(self, findable: Iterable[Block]) -> None:
        """Assert that just these blocks are known, and that their children are counted right."""
        assert self._blocks == {block.key: block for block in findable}, "a key without a block"
        counted: dict[bytes, int] = {}
        for block in self._blocks.values():
            counted[block.parent_key] = counted.get(block.parent_key, 0) + 1
        assert counted == self._num_children, "children are counted wrong"


def whole_blocks(num_tokens: int, block_size_tokens: int) -> int:
    """Blocks of a prompt that a hit may cover: one token at least is left to compute."""
    return max(num_tokens - 1, 0) // block_size_tokens


def longest(
    pool: "blocks.Pool",
    chain: "keys.Chain",
    token_ids: Sequence[int],
    format_of: Callable[[int], Format] = lambda _: Format.FULL,
) -> list[int]:
    """Ids of the findable blocks that hold the longest prefix of a prompt; nobody's hold changes.

    `format_of`: of a block by its index in the sequence.
    """
    size = pool.block_size_tokens
    found: list[int] = []
    for index in range(whole_blocks(len(token_ids), size)):
        key = chain.key(token_ids, index, format_of(index))
        block_id = pool.find(key, token_ids[index * size : (index + 1) * size])
        if block_id is None:
            break
        found.append(block_id)
    return found
