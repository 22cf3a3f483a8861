"""The part of the pool that is kept for later requests: measured here, decided in `cache.share`."""

from firsttoken_runtime.cache import blocks, share


class Sizing:
    """Of the pool in force."""

    def __init__(self) -> None:
        self._share: share.Share | None = None

    def set_largest(self, pool: blocks.Pool) -> None:
        """The pool or its setting may have changed; the same setting keeps what was decided."""
        largest = pool.caching.max_fraction if pool.caching is not None else None
        if largest is None:
            self._share = None
        elif self._share is None:
            self._share = share.Share(largest)
        elif self._share.largest != largest:
            self._share.set_largest(largest)
        if self._share is not None:
            pool.cache_share = self._share.fraction

    def note_prompt(self, num_tokens: int, now: float) -> None:
        """A prompt was admitted for the first time."""
        if self._share is not None:
            self._share.load.note_prompt(num_tokens, now)

    def note_running(self, num_running: int, pool: blocks.Pool, now: float) -> None:
        """Before each step; what is over the new share is evicted."""
        if self._share is None:
            return
        self._share.load.note_running(num_running, now)
        size = pool.block_size_tokens
        fraction = self._share.decide(pool.num_blocks * size, pool.num_pinned * size, now)
        if fraction != pool.cache_share:
            pool.cache_share = fraction
