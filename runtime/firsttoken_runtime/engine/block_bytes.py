"""The blocks of the device pool as raw bytes, many at a time, in the order of a host record.

A record is a block over all layers, and in each layer the pieces its cache names. Gathering and scattering
go through a staging tensor of whole records, so that between device and host only long runs of bytes are
copied, a few for each block, however many layers there are.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime.cache.formats import Format

_WIDEST_FIRST = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Part(NamedTuple):
    """What one layer stores of the blocks of one format, or some of it."""

    layer: int
    blocks: torch.Tensor
    """uint8 [2 (keys, values), blocks, bytes], or of a wider type with as many less."""
    start: int
    """Where it begins in a record, in bytes."""

    @property
    def stop(self) -> int:
        return self.start + 2 * self.blocks.shape[2] * self.blocks.itemsize

    def columns(self, records: torch.Tensor) -> torch.Tensor:
        """-> [2, N, as `blocks`], its part of each record."""
        both = records[:, self.start : self.stop].view(self.blocks.dtype)
        return both.view(len(records), 2, -1).transpose(0, 1)


class BlockBytes:
    """All blocks of one pool."""

    def __init__(
        self, layers: Sequence[paged_cache.LayerCache], num_full_blocks: int, block_size_tokens: int
    ) -> None:
        self.num_full_blocks = num_full_blocks
        self.block_size_tokens = block_size_tokens
        self.num_layers = len(layers)
        self.device = layers[0].full.device
        found = {fmt: _parts(layers, fmt, block_size_tokens) for fmt in Format}
        self.parts = {fmt: parts for fmt, parts in found.items() if parts}
        self.bytes_of = {fmt: parts[-1].stop for fmt, parts in self.parts.items()}

    def locate(self, block_id: int) -> tuple[Format, int]:
        """Its format, and its number among those of that format."""
        if Format.QUANTIZED in self.parts and block_id >= self.num_full_blocks:
            return Format.QUANTIZED, block_id - self.num_full_blocks
        return Format.FULL, block_id

    def num_blocks(self, fmt: Format) -> int:
        return self.parts[fmt][0].blocks.shape[1]

    def gather(self, fmt: Format, numbers: torch.Tensor, records: torch.Tensor) -> None:
        """Blocks to records.  numbers: int64 [N] on the device; records: uint8 [N, bytes of a block]."""
        for part in self.parts[fmt]:
            part.columns(records).copy_(part.blocks.index_select(1, numbers))

    def scatter(self, fmt: Format, numbers: torch.Tensor, records: torch.Tensor, layers: range) -> None:
        """Records to blocks, for some of the layers."""
        for part in self.parts[fmt]:
            if part.layer in layers:
                part.blocks.index_copy_(1, numbers, part.columns(records))

    def span(self, fmt: Format, layers: range) -> slice:
        """The bytes of these layers in a record."""
        parts = [part for part in self.parts[fmt] if part.layer in layers]
        return slice(parts[0].start, parts[-1].stop)

    def groups(self, least_bytes: int | None) -> list[range]:
        """Layers that follow each other, of at least so many bytes of the smallest record; None = all."""
        if least_bytes is None:
            return [range(self.num_layers)]
        layer_bytes = min(self.bytes_of.values()) // self.num_layers
        size = max(-(-least_bytes // layer_bytes), 1)
        return [range(start, min(start + size, self.num_layers)) for start in range(0, self.num_layers, size)]


def _parts(layers: Sequence[paged_cache.LayerCache], fmt: Format, block_size_tokens: int) -> list[Part]:
    pieces = [(number, piece) for number, layer in enumerate(layers) for piece in layer.pieces(int(fmt))]
    sizes = [block_size_tokens * piece[0, :1].nbytes for _, piece in pieces]
    # The library copies rows by index an element at a time: eight bytes at once are eight times as fast.
    wide = next(kind for kind in _WIDEST_FIRST if all(size % kind.itemsize == 0 for size in sizes))
    parts: list[Part] = []
    start = 0
    for (number, piece), size in zip(pieces, sizes, strict=True):
        num_blocks = piece.shape[1] // block_size_tokens
        if num_blocks == 0:
            return []
        used = piece[:, : num_blocks * block_size_tokens].view(torch.uint8)
        parts.append(Part(number, used.view(2, num_blocks, size).view(wide), start))
        start = parts[-1].stop
    return parts
