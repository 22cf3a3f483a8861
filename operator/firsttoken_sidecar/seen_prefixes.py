"""How much of a prompt this pod's engine may have in its cache, as far as one can tell from here. Pure.

An engine can only have what it was sent. So a prompt of which nothing was seen is computed whole, and the
engine need not be asked; and of one that was seen, the answers tell how much of it really is there.
"""

from collections import OrderedDict
from collections.abc import Sequence

MOST_KEYS = 16_384
"""Pieces of prompts, some two million tokens: as much as the cache of a large engine holds. A prompt that is
forgotten here is taken for a new one, so its estimate is too long until it was computed once more."""
TRUST_MEMORY = 0.05


class SeenPrefixes:
    """Keys of prefixes that were computed, the least recently used forgotten first."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._keys: OrderedDict[bytes, None] = OrderedDict()
        self._trust = 1.0

    def note(self, keys: Sequence[bytes]) -> None:
        """A prompt with these prefixes was computed."""
        for key in reversed(keys):  # the shortest prefix is the one that is shared most: it is kept longest
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._most_keys:
            self._keys.popitem(last=False)

    def seen_pieces(self, keys: Sequence[bytes]) -> int:
        """So many of the first pieces of a prompt were seen."""
        low, high = 0, len(keys)
        while low < high:  # what is seen of a prompt is seen up to some depth
            middle = (low + high + 1) // 2
            if keys[middle - 1] in self._keys:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def trust(self) -> float:
        """The share of what was seen that was found, 0..1."""
        return self._trust

    def found(self, seen_tokens: int, cached_tokens: int) -> None:
        """The engine said what it found of a prompt that was seen so far."""
        if seen_tokens > 0:
            share = min(cached_tokens / seen_tokens, 1.0)
            self._trust += TRUST_MEMORY * (share - self._trust)
