"""What the engine's cache probably has of a prompt, told from what was sent to it and came back. Pure.

The cache itself is in the engine's process, which is not to be asked: it would answer between two steps. So
the server remembers the blocks of the prompts and answers that it has seen computed, as many as the pool has,
the least recently used forgotten first. That is advice: the engine evicts by a rule of its own, and what it
finds is decided when a request's turn comes.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence


class PrefixIndex:
    """Hashes of whole blocks, each with all that is before it."""

    def __init__(self) -> None:
        self._keys: OrderedDict[int, None] = OrderedDict()
        self._block_size_tokens = 0

    def __len__(self) -> int:
        return len(self._keys)

    def note(self, token_ids: Sequence[int], salt: str, *, block_size_tokens: int, most_blocks: int) -> None:
        """All of these tokens were computed, under that salt."""
        self._use(block_size_tokens)
        keys = list(_keys(token_ids, salt, block_size_tokens))
        for key in reversed(keys[:most_blocks]):  # the first block is the one that is shared most
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > most_blocks:
            self._keys.popitem(last=False)

    def cached_tokens(self, token_ids: Sequence[int], salt: str, *, block_size_tokens: int) -> int:
        """Of a prompt; one token of it is always computed."""
        if block_size_tokens != self._block_size_tokens:
            return 0
        found = 0
        for key in _keys(token_ids[:-1], salt, block_size_tokens):
            if key not in self._keys:
                break
            found += block_size_tokens
        return found

    def clear(self) -> None:
        """The cache is empty, or is another one."""
        self._keys.clear()

    def _use(self, block_size_tokens: int) -> None:
        if block_size_tokens != self._block_size_tokens:
            self.clear()
            self._block_size_tokens = block_size_tokens


def _keys(token_ids: Sequence[int], salt: str, size: int) -> Iterator[int]:
    if size <= 0:
        return
    key = hash(salt)
    for start in range(0, len(token_ids) - size + 1, size):
        key = hash((key, tuple(token_ids[start : start + size])))
        yield key
