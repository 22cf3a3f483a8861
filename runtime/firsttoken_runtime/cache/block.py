"""One block of the pool, and what is said of it when it is evicted."""

from collections.abc import Sequence
from typing import NamedTuple

from firsttoken_runtime.cache.formats import Format


class Evicted(NamedTuple):
    """What a findable block holds. If it was evicted, its bytes are there until it is next written."""

    block_id: int
    key: bytes
    parent_key: bytes
    token_ids: tuple[int, ...]
    fmt: Format
    hits: int
    extends_hit: bool = False
    """It came after blocks that were found, as the newest turn of a conversation does."""


class Block:
    """It is findable while it has a key."""

    __slots__ = (
        "block_id",
        "extends_hit",
        "fmt",
        "hits",
        "key",
        "parent_key",
        "reference_count",
        "token_ids",
    )

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
        self.extends_hit = False

    def name(self, key: bytes, parent_key: bytes, token_ids: Sequence[int]) -> None:
        self.key, self.parent_key, self.token_ids = key, parent_key, tuple(token_ids)

    @property
    def is_findable(self) -> bool:
        return bool(self.key)

    def told(self) -> Evicted:
        return Evicted(
            self.block_id, self.key, self.parent_key, self.token_ids, self.fmt, self.hits, self.extends_hit
        )
