"""Under which key a block is found again: sha256 over everything that its contents depend on.

The keys of a sequence are a chain. It starts at a root made of the lineage (the effective numerics) and
the salt (whose prompts may share), and each link adds the tokens of one whole block and the format they
are stored in. Equal keys therefore mean equal tokens from the first one on, under equal numerics.
"""

import hashlib
import struct
from collections.abc import Sequence

from firsttoken_runtime.cache.formats import Format

KEY_BYTES = 32


def root(lineage: bytes, salt: str) -> bytes:
    """The parent of a first block, or, with a key for the lineage, of the first one that is under that salt.
    Salt "" is shared by all."""
    # The length keeps two pairs apart whose concatenations are equal.
    return hashlib.sha256(struct.pack("<Q", len(lineage)) + lineage + salt.encode()).digest()


def chain(parent: bytes, token_ids: Sequence[int], fmt: Format) -> bytes:
    """The key of the block with `token_ids` after `parent`."""
    assert len(parent) == KEY_BYTES, len(parent)
    return hashlib.sha256(parent + struct.pack(f"<B{len(token_ids)}I", fmt, *token_ids)).digest()


class Chain:
    """The keys of one sequence, computed when first asked for and kept."""

    __slots__ = ("_block_size_tokens", "_formats", "_keys", "num_public", "root")

    def __init__(
        self, root: bytes, block_size_tokens: int, public: Sequence[tuple[bytes, Format]] = ()
    ) -> None:
        """public: keys of first blocks that are everybody's; `root` is the parent of the one after them."""
        assert len(root) == KEY_BYTES, len(root)
        self.root = root
        self.num_public = len(public)
        self._block_size_tokens = block_size_tokens
        self._keys = [key for key, _ in public]
        self._formats = [fmt for _, fmt in public]

    def key(self, token_ids: Sequence[int], index: int, fmt: Format) -> bytes:
        """The key of block `index`, which must be whole. `token_ids`: the sequence's, only ever appended to.

        Blocks that were not asked for before get the format of `fmt`, so ask in order where formats change.
        """
        if index >= len(self._keys):
            self._extend(token_ids, index, fmt)
        assert self._formats[index] is fmt, f"block {index} has two formats"
        return self._keys[index]

    def _extend(self, token_ids: Sequence[int], index: int, fmt: Format) -> None:
        size = self._block_size_tokens
        assert (index + 1) * size <= len(token_ids), (index, size, len(token_ids))
        for unknown in range(len(self._keys), index + 1):
            parent = self._keys[-1] if len(self._keys) > self.num_public else self.root
            self._keys.append(chain(parent, token_ids[unknown * size : (unknown + 1) * size], fmt))
            self._formats.append(fmt)

    def parent(self, index: int) -> bytes:
        """The key before that of block `index`, which must be known, and none of the public ones."""
        assert index >= self.num_public, index
        return self._keys[index - 1] if index > self.num_public else self.root
