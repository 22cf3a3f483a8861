"""Builders for tests of the host tier's folder: records by a number, and a folder with its problems."""

import os
from pathlib import Path

from firsttoken_runtime.cache import disk_folder, disk_record, host_problems
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.cache.formats import Format
from runtime.host_tier import LINEAGE, evicted

OTHER_LINEAGE = bytes(32)
BYTES_OF = {Format.FULL: 64, Format.QUANTIZED: 40}
RECORD_BYTES = len(
    disk_record.encode(Record(LINEAGE, bytes(32), bytes(32), range(4), Format.FULL, bytes(64)))
)


def record(name: int, fmt: Format = Format.FULL, *, lineage: bytes = LINEAGE) -> Record:
    block = evicted(name, fmt)
    payload = bytes([name]) * BYTES_OF[fmt]
    return Record(lineage, block.key, block.parent_key, block.token_ids, fmt, payload)


def path_of(folder: Path, name: int) -> Path:
    return folder / (record(name).key.hex() + ".kv")


class Shelf:
    """A folder with its problems."""

    def __init__(self, path: Path, capacity_bytes: int = 1_000_000) -> None:
        self.path = path
        self.problems = host_problems.Problems()
        self.folder = disk_folder.Folder(path, capacity_bytes, self.problems)

    def write(self, *names: int) -> None:
        for age, name in enumerate(names):
            assert self.folder.write(record(name))
            os.utime(path_of(self.path, name), (1_000 + age, 1_000 + age))

    def names(self) -> list[int]:
        """Of what can be used, in the order in which it is read."""
        return [found.payload[0] for found in self.folder.records(LINEAGE, BYTES_OF)]
