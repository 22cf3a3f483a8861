"""In which order the host tier lets blocks go: segmented LRU over their bytes. Pure.

Blocks that were asked for twice are protected, up to a part of the memory; what is over is put back among
the others, the least recently used first. Blocks of texts that were seen once pass through the rest.
"""

from collections import OrderedDict
from collections.abc import Iterator

PROTECTED_FRACTION = 0.8
"""Of the capacity."""


class Order:
    """Keys and their bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._most_protected_bytes = PROTECTED_FRACTION * capacity_bytes
        self._protected_bytes = 0
        self._protected: OrderedDict[bytes, int] = OrderedDict()  # oldest first
        self._others: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._protected) + len(self._others)

    def __iter__(self) -> Iterator[bytes]:
        """Who goes first, first."""
        yield from self._others
        yield from self._protected

    def is_protected(self, key: bytes) -> bool:
        return key in self._protected

    def add(self, key: bytes, num_bytes: int, *, is_protected: bool) -> None:
        """The one used last. A protected one may not be so for long."""
        self._others[key] = num_bytes
        if is_protected:
            self.protect(key)

    def add_oldest(self, key: bytes, num_bytes: int) -> None:
        """Protected if there is room, and in any case the first of its part to go."""
        if self._protected_bytes + num_bytes <= self._most_protected_bytes:
            self._protected[key] = num_bytes
            self._protected.move_to_end(key, last=False)
            self._protected_bytes += num_bytes
        else:
            self._others[key] = num_bytes
            self._others.move_to_end(key, last=False)

    def use(self, key: bytes) -> None:
        """It was seen again, which is not asked for."""
        part = self._protected if key in self._protected else self._others
        part.move_to_end(key)

    def protect(self, key: bytes) -> None:
        """It was asked for, last of all."""
        if key in self._protected:
            self._protected.move_to_end(key)
            return
        num_bytes = self._protected[key] = self._others.pop(key)
        self._protected_bytes += num_bytes
        while self._protected_bytes > self._most_protected_bytes:
            oldest, num_bytes = self._protected.popitem(last=False)
            self._others[oldest] = num_bytes
            self._protected_bytes -= num_bytes

    def remove(self, key: bytes) -> None:
        if key in self._protected:
            self._protected_bytes -= self._protected.pop(key)
        else:
            del self._others[key]

    def check_integrity(self, num_bytes_of: dict[bytes, int]) -> None:
        """Assert that it has just these keys, each once, and keeps its bound."""
        assert not self._protected.keys() & self._others.keys(), "a block is in both parts"
        assert {**self._protected, **self._others} == num_bytes_of, "order and index disagree"
        assert self._protected_bytes == sum(self._protected.values()), "bytes are miscounted"
        assert self._protected_bytes <= self._most_protected_bytes, "too much is protected"
