"""The folder that keeps the host tier: one file a record, named after its key. As slow as a disk is.

A file appears under its name only when it is whole. Nothing is synced to the disk: after a power failure
a file may be damaged, and its digest tells. Several engines may share a folder and its capacity: each looks
now and then at what the others wrote, and two that make room at once remove the same records, so no lock is
needed; a file that is gone in the next moment is a miss. Files that are not ours are left alone, those of
other versions and lineages too until they are the oldest.
"""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from firsttoken_runtime.cache import disk_record
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.cache.host_problems import Problems

SUFFIX = ".kv"
_NAME = re.compile(r"[0-9a-f]{64}\.kv")
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\.kv\.[0-9a-f]{16}")
_STALE_S = 600.0
"""A temporary file that old was left by a process that died; a younger one may be another engine's."""
_TRIM_TO = 0.9
"""Of the capacity, when it is exceeded, so that not every record looks at the whole folder."""
_LOOK_AFTER = 0.05
"""Of the capacity, written by one engine since it last looked: by so much, for each engine that shares the
folder, can the capacity be exceeded for a while."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

DISK_FULL = "disk_full"
UNREADABLE = "unreadable"
UNWRITABLE = "unwritable"


class File(NamedTuple):
    """A record in the folder."""

    used_at: float
    num_bytes: int
    path: Path

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.path.name.removesuffix(SUFFIX))


class Folder:
    """Reads and writes records. One thread writes; others may read."""

    def __init__(self, path: Path, capacity_bytes: int, problems: Problems) -> None:
        self.path = path
        self.capacity_bytes = capacity_bytes
        self._problems = problems
        self._num_bytes: int | None = None
        """Of all records; None = not looked at yet. What other engines add is seen at the next look."""
        self._written_bytes = 0
        """Since the last look."""

    def files(self) -> list[File]:
        """Records, used last first. A folder that cannot be read has none."""
        found: list[File] = []
        foreign: list[str] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        found.append(File(facts.st_mtime, facts.st_size, Path(entry.path)))
                    elif _TEMPORARY.fullmatch(entry.name):
                        self._remove_if_stale(Path(entry.path))
                    else:
                        foreign.append(entry.name)
        except FileNotFoundError:
            pass  # nothing was stored yet, or another engine removed a file while we looked
        except OSError as error:
            self._problems.note(UNREADABLE, f"{self.path}: {error.strerror}")
        if foreign:
            self._problems.note(
                disk_record.FOREIGN,
                f"{self.path} holds files that are not records, as {foreign[0]}",
                len(foreign),
            )
        return sorted(found, reverse=True)

    def records(self, lineage: bytes, bytes_of: Mapping[Format, int]) -> Iterator[disk_record.Record]:
        """What can be used, used last first. The rest is counted; damaged files are removed."""
        for file in self.files():
            try:
                data = _read(file.path, lineage, bytes_of)
                yield disk_record.decode(data, lineage, bytes_of, file.key)
            except FileNotFoundError:
                continue
            except disk_record.Unusable as unusable:
                self._problems.note(unusable.reason, f"{file.path}: {unusable}")
                if unusable.reason == disk_record.DAMAGED:
                    self._remove(file.path)
            except OSError as error:
                self._problems.note(UNREADABLE, f"{file.path}: {error.strerror}")

    def write(self, record: disk_record.Record) -> bool:
        """True when the record is in the folder."""
        path = self.path / (record.key.hex() + SUFFIX)
        temporary = self.path / f".{path.name}.{secrets.token_hex(8)}"
        try:
            if _was_touched(path):
                return True
            data = disk_record.encode(record)
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Prompts can be read from these files: nobody else may open them.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(path)
        except OSError as error:
            reason = DISK_FULL if error.errno in _FULL else UNWRITABLE
            self._problems.note(reason, f"{path}: {error.strerror}")
            self._remove(temporary)
            return False
        self._count(len(data))
        return True

    def _count(self, num_bytes: int) -> None:
        """Keep to the capacity: the records used longest ago go."""
        self._written_bytes += num_bytes
        if self._num_bytes is not None:
            self._num_bytes += num_bytes
            is_over = self._num_bytes > self.capacity_bytes
            if not is_over and self._written_bytes <= self.capacity_bytes * _LOOK_AFTER:
                return
        files = self.files()
        self._written_bytes = 0
        self._num_bytes = sum(file.num_bytes for file in files)
        if self._num_bytes > self.capacity_bytes:
            while files and self._num_bytes > self.capacity_bytes * _TRIM_TO:
                oldest = files.pop()
                self._remove(oldest.path)
                self._num_bytes -= oldest.num_bytes

    def _remove_if_stale(self, path: Path) -> None:
        try:
            age_s = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return  # its engine has finished it
        if age_s > _STALE_S:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            pass  # it was never made, or another engine was first
        except OSError as error:
            self._problems.note(UNWRITABLE, f"{path}: {error.strerror}")


def _was_touched(path: Path) -> bool:
    """Whether the file is there; it is the one used last then."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _read(path: Path, lineage: bytes, bytes_of: Mapping[Format, int]) -> bytes:
    """All bytes of a record; no more of any other file than its head. Raises Unusable, OSError."""
    # Not following links and not waiting for a pipe's other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise disk_record.Unusable(disk_record.FOREIGN, "it is not a file")
        head = file.read(disk_record.HEAD_BYTES)
        disk_record.check_head(head, facts.st_size, lineage, bytes_of)
        return head + file.read(facts.st_size - len(head))
