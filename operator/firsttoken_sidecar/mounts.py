"""Files that the kubelet mounts and swaps: a ConfigMap's key, the downward API.

The kubelet writes a new folder and moves the `..data` link to it, so one `readlink` tells whether
anything changed. Outside a pod a plain file works too; then its stamp tells.
"""

from pathlib import Path

Version = tuple[str, int, int, int]
_DATA_LINK = "..data"


class MountedFile:
    """One file of a mounted folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._link = folder / _DATA_LINK
        self._seen: Version | None = None
        self._is_first = True

    def changed(self) -> bool:
        """Whether the file is another one than at the last call; the first call says yes."""
        version = self._version()
        if version == self._seen and not self._is_first:
            return False
        self._seen = version
        self._is_first = False
        return True

    def read(self) -> bytes | None:
        """The content; None while there is no such file. Other trouble is an OSError."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _version(self) -> Version | None:
        try:
            target = str(self._link.readlink())
        except OSError:
            target = ""
        try:
            stamp = self.path.stat()
        except OSError:
            return None
        return (target, stamp.st_mtime_ns, stamp.st_size, stamp.st_ino)
