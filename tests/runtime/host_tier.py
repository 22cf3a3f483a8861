"""Builders for tests of the host tier: small pools with real bytes, evicted blocks, keys."""

import hashlib

import torch

from firsttoken_runtime.cache import disk_store, host, host_problems, host_store, keys, layout, storage
from firsttoken_runtime.cache.blocks import Evicted
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import copies, copy_lane
from firsttoken_runtime.engine.block_bytes import BlockBytes

LINEAGE = hashlib.sha256(b"a lineage").digest()
BLOCK_SIZE = 4


def evicted(
    name: int, fmt: Format = Format.FULL, *, hits: int = 1, block_id: int = 0, parent: bytes | None = None
) -> Evicted:
    """A block whose tokens follow from `name`; the same name and parent give the same key."""
    parent = keys.root(LINEAGE, "") if parent is None else parent
    token_ids = tuple(range(name * BLOCK_SIZE, (name + 1) * BLOCK_SIZE))
    return Evicted(block_id, keys.chain(parent, token_ids, fmt), parent, token_ids, fmt, hits)


def block_bytes(
    counts: Counts,
    *,
    num_layers: int = 3,
    num_kv_heads: int = 1,
    head_dim: int = 6,
    dtype: torch.dtype = torch.float32,
    full_precision_layers: int = 1,
    block_size_tokens: int = BLOCK_SIZE,
) -> BlockBytes:
    """int8 where there are quantized blocks."""
    shape = layout.Shape(num_layers, num_kv_heads, head_dim, dtype.itemsize)
    kv_type: layout.KvType = "int8" if counts.quantized else "full"
    kept = full_precision_layers if counts.quantized else 0
    cut = layout.Layout(shape, block_size_tokens, counts, kv_type, kept)
    buffer = storage.allocate(cut.num_bytes, num_layers, torch.device("cpu"))
    blocks = BlockBytes(storage.carve(buffer, cut, dtype), counts.full, block_size_tokens)
    for fmt in blocks.bytes_of:
        assert blocks.bytes_of[fmt] == cut.block_bytes(fmt), "the layout's formula is not what is copied"
    return blocks


def contents(blocks: BlockBytes, block_id: int) -> bytes:
    """The record of a block."""
    fmt, number = blocks.locate(block_id)
    record = torch.empty((1, blocks.bytes_of[fmt]), dtype=torch.uint8)
    blocks.gather(fmt, torch.tensor([number]), record)
    return record.numpy().tobytes()


def expected(key: bytes, num_bytes: int) -> bytes:
    """Bytes that only the block with this key has."""
    return hashlib.shake_128(key).digest(num_bytes)


def fill(blocks: BlockBytes, block_id: int, key: bytes) -> None:
    """Compute a block: give it its `expected` contents."""
    fmt, number = blocks.locate(block_id)
    data = bytearray(expected(key, blocks.bytes_of[fmt]))
    record = torch.frombuffer(data, dtype=torch.uint8).view(1, -1)
    blocks.scatter(fmt, torch.tensor([number]), record, range(blocks.num_layers))


def tier(
    blocks: BlockBytes,
    num_records: int,
    *,
    disk: disk_store.DiskStore | None = None,
    by_layer: bool = False,
    lane: copy_lane.Lane | None = None,
    problems: host_problems.Problems | None = None,
) -> copies.Copies:
    """A host tier of so many records of the larger format, and what copies to and from it."""
    capacity = num_records * max(blocks.bytes_of.values())
    index = host.HostIndex(capacity, blocks.bytes_of)
    store = host_store.HostStore(capacity, index.cut, pinned=False)
    return copies.Copies(
        index,
        store,
        blocks,
        LINEAGE,
        problems or host_problems.Problems(),
        disk=disk,
        by_layer=by_layer,
        lane=lane,
    )
