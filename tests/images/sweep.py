"""Forgets images of earlier code and packages of earlier locks: the cache must not grow without end."""

import shutil
from collections.abc import Collection
from pathlib import Path

# A person goes back and forth between a few states of the code; other checkouts have theirs.
KEPT_TAGS = 12
KEPT_PACKAGES = 2


def newest(records: Collection[Path], count: int) -> set[Path]:
    """The `count` records that were used last."""
    return set(sorted(records, key=lambda path: path.stat().st_mtime, reverse=True)[:count])


def old_references(present: Collection[str], records: Path, used: Collection[str]) -> list[str]:
    """Those images `present` in the cluster that are ours, of no recent tag, and have no container."""
    tags = {path.stem.partition("-")[2] for path in newest(list(records.glob("operator-*.json")), KEPT_TAGS)}
    ours = [reference for reference in present if reference.startswith("localhost/firsttoken/")]
    return sorted(
        reference
        for reference in ours
        if not reference.startswith("localhost/firsttoken/pause")
        and reference.rpartition(":")[2] not in tags
        and reference not in used
    )


def old_packages(folder: Path) -> list[Path]:
    """Removes folders of packages that were not used lately or not finished; returns them."""
    kept = {path.with_suffix("") for path in newest(list(folder.glob("runtime-*.json")), KEPT_PACKAGES)}
    gone = [path for path in folder.glob("runtime-*") if path.is_dir() and path not in kept]
    for path in gone:
        path.with_suffix(".json").unlink(missing_ok=True)
        shutil.rmtree(path)
    return gone
