"""Demand in prompt tokens, as it would be if every request were served. Pure.

A client that is refused comes back with the same body: that is one piece of work asked for again, not more
of it. So a refusal counts once per (client, body) in 60 s, and the retry that is then served adds nothing.
Two equal requests that are both served are two.
"""

from collections import OrderedDict

REMEMBERED_S = 60.0
MOST_REMEMBERED = 20_000

Key = tuple[str, bytes]
"""Client and hash of the body."""


class Demand:
    """Counts tokens since the start."""

    def __init__(self) -> None:
        self.tokens_total = 0
        self._refused: OrderedDict[Key, float] = OrderedDict()  # when it was counted, oldest first

    def refused(self, key: Key | None, tokens: int, now: float) -> bool:
        """Whether this refusal is the first of its body. `key` None: it cannot be told from others."""
        self._forget(now)
        if key is not None:
            if key in self._refused:
                return False
            self._refused[key] = now
        self.tokens_total += tokens
        return True

    def served(self, key: Key | None, tokens: int, now: float) -> None:
        """A request got, or would have got, its answer."""
        self._forget(now)
        if key is None or self._refused.pop(key, None) is None:
            self.tokens_total += tokens

    def _forget(self, now: float) -> None:
        while self._refused:
            oldest = next(iter(self._refused.values()))
            if now - oldest < REMEMBERED_S and len(self._refused) < MOST_REMEMBERED:
                return
            self._refused.popitem(last=False)
