"""The KV memory of one engine: allocated once, cut up anew whenever a switch changes the layout.

A layout follows from a flag set; from a layout follow the views that the decoder writes through and the
pool that the scheduler hands out. Nothing here allocates after the start, so a switch costs no copy and
cannot run out of memory.
"""

from collections.abc import Sequence

import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime.cache import blocks, storage
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import flags

INITIAL_FULL_PART = 0.125
"""Of the bytes, for declared shared prefixes, where the other blocks are quantized. Less, and requests with
different prefixes could not run side by side; more, and little would be left of what a KV type gains."""


class KvMemory:
    """One byte budget and what can be made of it."""

    def __init__(
        self,
        shape: cache_layout.Shape,
        num_slots: int,
        block_size_tokens: int,
        max_model_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """num_slots: tokens that fit in full precision; they are the budget."""
        full = cache_layout.Layout(shape, block_size_tokens, Counts())
        self.budget_bytes = num_slots * full.private_token_bytes
        self.max_model_len = max_model_len
        self._shape = shape
        self._block_size_tokens = block_size_tokens
        self._dtype = dtype
        self._buffer = storage.allocate(self.budget_bytes, shape.num_layers, device)

    def layout(
        self, in_force: flags.InForce, full_share: float = 0.0, pinned: Sequence[Sequence[int]] = ()
    ) -> cache_layout.Layout:
        """full_share: the part of all blocks that demand wants in full precision, under a KV type. pinned:
        prompts that get room besides."""
        block_size_tokens = self._block_size_tokens if in_force.paged_kv else self.max_model_len

        def layout(share: float) -> cache_layout.Layout:
            return cache_layout.within(
                self.budget_bytes,
                self._shape,
                block_size_tokens,
                self.max_model_len,
                kv_type=in_force.kv_type,
                full_precision_layers=in_force.full_precision_layers,
                full_share=share,
            )

        block = cache_layout.Layout(
            self._shape, block_size_tokens, Counts(), in_force.kv_type, in_force.full_precision_layers
        )
        without_pins = layout(max(full_share, initial_full_share(block)))
        if not without_pins.is_quantized or not pinned:
            return without_pins
        pinned_blocks = sum(
            min(len(prompt), without_pins.max_full_prefix_tokens) // block_size_tokens for prompt in pinned
        )
        # At most half of the blocks can be pinned, and those of the longest prefix are left to others.
        return layout(share_of(without_pins.counts.full + 2 * pinned_blocks, block, self.budget_bytes))

    def carve(self, layout: cache_layout.Layout) -> list[paged_cache.LayerCache]:
        """Views that no other layout's views may be used beside."""
        return storage.carve(self._buffer, layout, self._dtype)

    def pool(self, layout: cache_layout.Layout, in_force: flags.InForce) -> blocks.Pool:
        """Of all blocks; nothing is held or findable."""
        return blocks.Pool(
            layout.counts.full,
            layout.block_size_tokens,
            num_quantized=layout.counts.quantized,
            caching=self.caching(layout, in_force),
        )

    def caching(self, layout: cache_layout.Layout, in_force: flags.InForce) -> blocks.Caching | None:
        if in_force.prefix_cache is None:
            return None
        return blocks.Caching(
            in_force.prefix_cache.max_fraction,
            in_force.prefix_cache.protected_fraction,
            reserved=self._longest(layout),
        )

    def _longest(self, layout: cache_layout.Layout) -> Counts:
        """Blocks of each format that the longest sequence may need."""
        num_blocks = -(-self.max_model_len // layout.block_size_tokens)
        if not layout.is_quantized:
            return Counts(num_blocks, 0)
        return Counts(layout.max_full_prefix_tokens // layout.block_size_tokens, num_blocks)


def initial_full_share(block: cache_layout.Layout) -> float:
    """Of the blocks, so that they take INITIAL_FULL_PART of the bytes."""
    full = INITIAL_FULL_PART / block.block_bytes(Format.FULL)
    quantized = (1 - INITIAL_FULL_PART) / block.block_bytes(Format.QUANTIZED)
    return full / (full + quantized)


def share_of(num_full: int, block: cache_layout.Layout, budget_bytes: int) -> float:
    """Of the blocks, so that so many are FULL in that budget."""
    full, quantized = block.block_bytes(Format.FULL), block.block_bytes(Format.QUANTIZED)
    left = budget_bytes - num_full * (full - quantized)
    return min(num_full * quantized / left, 1.0) if left > 0 else 1.0


def is_same_layout(one: flags.InForce, other: flags.InForce) -> bool:
    """True if a switch from one to the other leaves every stored byte where it is and what it means."""
    return (one.paged_kv, one.kv_type, one.full_precision_layers) == (
        other.paged_kv,
        other.kv_type,
        other.full_precision_layers,
    )
