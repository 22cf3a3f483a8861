"""Which keys are never evicted: the first blocks of the prompts that somebody pinned.

A key may be pinned before any block has it, and stays pinned when its block goes with a switch: the pin
is for whichever block is published under it. Only so many keys can be pinned, per format; those pinned
first stay when the bound falls, so a prompt loses its end and not its beginning.
"""

from firsttoken_runtime.cache.formats import Counts, Format


class Pins:
    """Keys in the order in which they were pinned."""

    def __init__(self) -> None:
        self.most = Counts()
        self._keys: dict[bytes, Format] = {}
        self._counts = Counts()

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def counts(self) -> Counts:
        return self._counts

    def add(self, key: bytes, fmt: Format) -> bool:
        """False if there is no room for it."""
        if key in self._keys:
            return True
        if self._counts[fmt] >= self.most[fmt]:
            return False
        self._keys[key] = fmt
        self._counts += Counts.of(fmt, 1)
        return True

    def bound(self, most: Counts) -> list[bytes]:
        """At most so many from now on. -> keys that are no longer pinned."""
        self.most = most
        dropped = []
        for key, fmt in reversed(list(self._keys.items())):
            if self._counts[fmt] > most[fmt]:
                del self._keys[key]
                self._counts -= Counts.of(fmt, 1)
                dropped.append(key)
        return dropped

    def clear(self) -> list[bytes]:
        """-> keys that are no longer pinned."""
        dropped = list(self._keys)
        self._keys.clear()
        self._counts = Counts()
        return dropped
