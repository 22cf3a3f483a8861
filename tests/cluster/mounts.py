"""Mounts below the cluster's folders: found in mountinfo, detached deepest first."""

import re
from collections.abc import Iterable
from pathlib import Path

from cluster import execute

_OCTAL = re.compile(r"\\([0-7]{3})")


def parse(mountinfo: str) -> list[Path]:
    """Mount points of a mountinfo table in its order; the kernel writes spaces and the like as \\040."""
    return [Path(unescape(row.split(" ")[4])) for row in mountinfo.splitlines() if row]


def unescape(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def below(points: Iterable[Path], folders: Iterable[Path]) -> list[Path]:
    """Mount points inside any of `folders` (or one itself), deepest first."""
    roots = tuple(folders)
    inside = [point for point in points if any(point.is_relative_to(root) for root in roots)]
    return sorted(inside, key=lambda point: len(point.parts), reverse=True)


def find(folders: Iterable[Path]) -> list[Path]:
    return below(parse(Path("/proc/self/mountinfo").read_text()), folders)


def detach(folders: Iterable[Path]) -> None:
    """Unmounts lazily, since a dying process may hold a file; twice, for mounts stacked on one point."""
    roots = tuple(folders)
    for _ in range(2):
        found = find(roots)
        if not found:
            return
        execute.run(["umount", "--lazy", *map(str, found)], timeout_s=60, check=False)
