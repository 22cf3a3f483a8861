"""One block of the host tier as the bytes of a file. Pure; `disk_store` has the folder.

A record says everything that is needed to trust it: version, lineage, the key and what the key was made
of. A digest over all of it is its end, so that a file that was cut, damaged or only half written is told
from a whole one. Whatever is not exactly right is `Unusable`, which the reader takes for a miss.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken_runtime.cache import keys
from firsttoken_runtime.cache.formats import Format

MAGIC = b"FTKV"
VERSION = 1
LINEAGE_BYTES = 32
DIGEST_BYTES = hashlib.sha256().digest_size
_HEAD = struct.Struct(f"<4sHBxIQ{keys.KEY_BYTES}s{keys.KEY_BYTES}s{LINEAGE_BYTES}s")
"""Magic, version, format, tokens, bytes of the payload, key, key of the parent, lineage."""
HEAD_BYTES = _HEAD.size
_MOST_TOKENS = 2**16
"""No block has more."""


class Unusable(Exception):  # noqa: N818
    """Not a record that may be used here. `reason` counts it; the message says what is wrong."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


DAMAGED = "damaged"
FOREIGN = "foreign"
OTHER_VERSION = "other_version"
OTHER_LINEAGE = "other_lineage"
OTHER_SIZE = "other_size"


@dataclass(frozen=True)
class Record:
    """A block: what it is, and its raw bytes over all layers."""

    lineage: bytes
    key: bytes
    parent_key: bytes
    token_ids: Sequence[int]
    fmt: Format
    payload: bytes


def encode(record: Record) -> bytes:
    assert len(record.lineage) == LINEAGE_BYTES, len(record.lineage)
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        record.fmt,
        len(record.token_ids),
        len(record.payload),
        record.key,
        record.parent_key,
        record.lineage,
    )
    tokens = struct.pack(f"<{len(record.token_ids)}I", *record.token_ids)
    digest = hashlib.sha256(head)
    digest.update(tokens)
    digest.update(record.payload)
    return b"".join((head, tokens, record.payload, digest.digest()))


def check_head(data: bytes, num_bytes: int, lineage: bytes, bytes_of: Mapping[Format, int]) -> None:
    """Raises Unusable where the first `HEAD_BYTES` of a file of `num_bytes` already show that the rest need
    not be read: what is read is never more than a record of this engine has."""
    if not data:
        raise Unusable(DAMAGED, "it is empty")
    if data[: len(MAGIC)] != MAGIC:
        raise Unusable(FOREIGN, "it does not start like a record")
    if len(data) < HEAD_BYTES:
        raise Unusable(DAMAGED, f"it ends in its header, after {len(data)} bytes")
    _, version, _, num_tokens, payload_bytes, _, _, its_lineage = _HEAD.unpack_from(data)
    if version != VERSION:
        raise Unusable(OTHER_VERSION, f"it has version {version}, this engine reads {VERSION}")
    if its_lineage != lineage:
        raise Unusable(OTHER_LINEAGE, f"it was computed under lineage {its_lineage.hex()[:16]}")
    if num_bytes != HEAD_BYTES + 4 * num_tokens + payload_bytes + DIGEST_BYTES:
        raise Unusable(DAMAGED, f"it has {num_bytes} bytes, not those its header tells of")
    if num_tokens > _MOST_TOKENS or payload_bytes > max(bytes_of.values()):
        raise Unusable(OTHER_SIZE, f"its block has {num_tokens} tokens and {payload_bytes} bytes")


def decode(data: bytes, lineage: bytes, bytes_of: Mapping[Format, int], name_key: bytes) -> Record:
    """The record in a file that is named after `name_key`. Raises Unusable."""
    check_head(data, len(data), lineage, bytes_of)
    _, _, fmt_number, num_tokens, payload_bytes, key, parent_key, _ = _HEAD.unpack_from(data)
    if hashlib.sha256(memoryview(data)[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
        raise Unusable(DAMAGED, "its checksum is wrong")
    expected = {int(fmt): size for fmt, size in bytes_of.items()}.get(fmt_number)
    if payload_bytes != expected:
        raise Unusable(
            OTHER_SIZE, f"its block of format {fmt_number} has {payload_bytes} bytes, not {expected}"
        )
    fmt = Format(fmt_number)
    token_ids = struct.unpack_from(f"<{num_tokens}I", data, HEAD_BYTES)
    if key != name_key or key != keys.chain(parent_key, token_ids, fmt):
        raise Unusable(DAMAGED, "its key is not that of its tokens")
    start = HEAD_BYTES + 4 * num_tokens
    return Record(lineage, key, parent_key, token_ids, fmt, data[start : start + payload_bytes])
