"""A folder of installed packages as an image layer: the same folder always gives the same bytes.

Owners and times are fixed, names are sorted. Nothing is written to disk: the layer goes to whoever reads it,
once to be hashed and once more when it is loaded.
"""

import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import IO, Any, Protocol, cast

Buffer = Any  # collections.abc.Buffer of Python 3.12

PACKAGES_PREFIX = "opt/firsttoken/site"
COPY_BYTES = 1 << 20


class Writer(Protocol):
    """What a layer is written to."""

    def write(self, data: bytes, /) -> object: ...


class Hasher:
    """Counts and hashes what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes, /) -> int:
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def write_layer(folder: Path, prefix: str, out: Writer) -> None:
    """Writes `folder` as an uncompressed tar stream whose members lie below `prefix` (no leading slash)."""
    stream = cast(IO[bytes], _Stream(out))
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, bufsize=COPY_BYTES) as tar:
        tar.copybufsize = COPY_BYTES  # type: ignore[attr-defined]
        parents = prefix.split("/")
        for depth in range(1, len(parents) + 1):
            tar.addfile(_member("/".join(parents[:depth]), tarfile.DIRTYPE, 0o755))
        _add_below(tar, folder, prefix)


def _add_below(tar: tarfile.TarFile, folder: Path, prefix: str) -> None:
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_symlink():
            member = _member(name, tarfile.SYMTYPE, 0o777)
            member.linkname = str(Path(entry.path).readlink())
            tar.addfile(member)
        elif entry.is_dir():
            tar.addfile(_member(name, tarfile.DIRTYPE, 0o755))
            _add_below(tar, Path(entry.path), name)
        else:
            stat = entry.stat()
            member = _member(name, tarfile.REGTYPE, 0o755 if stat.st_mode & 0o100 else 0o644)
            member.size = stat.st_size
            with Path(entry.path).open("rb") as content:
                tar.addfile(member, content)


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = mode
    return member


class _Stream(io.RawIOBase):
    """Our writer as the file object that tarfile asks for."""

    def __init__(self, out: Writer) -> None:
        super().__init__()
        self._out = out

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        view = bytes(data)
        self._out.write(view)
        return len(view)
