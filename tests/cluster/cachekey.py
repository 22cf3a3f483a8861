"""Names cache entries by what they were made from, so no stale one is ever found."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

KEY_LENGTH = 16


def of(files: Iterable[Path], words: Iterable[str]) -> str:
    """A key over file names and contents (not their folders) and words such as flags and tool versions."""
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda file: file.name):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"file {path.name} {content}\n".encode())
    for word in words:
        digest.update(f"word {len(word)} {word}\n".encode())
    return digest.hexdigest()[:KEY_LENGTH]
