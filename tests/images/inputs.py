"""What each part of an image is made from, as keys: equal inputs, equal key, nothing to build.

Pure but for reading the files. A tag made from content means that pods get the new code whenever there is
some, and that a name never stands for two contents.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

KEY_DIGITS = 12
DOCKERFILES = {
    "operator": "operator/Dockerfile",
    "sidecar": "operator/Dockerfile",
    "runtime": "runtime/Dockerfile",
}
ROLES = tuple(DOCKERFILES)
# Files and folders that the stage `code` copies.
CODE = (
    "pyproject.toml",
    "README.md",
    "requirements/build.lock",
    "crds/firsttoken_api",
    "kernels/firsttoken_kernels",
    "kernels/native",
    "operator/firsttoken_operator",
    "operator/firsttoken_sidecar",
    "runtime/firsttoken_runtime",
)
RUNTIME_PACKAGES = ("requirements/runtime.lock", "runtime/install_packages.py", "runtime/cpu-image.exclude")


def key(parts: Iterable[bytes | str]) -> str:
    """12 hex digits over the parts and their borders."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:KEY_DIGITS]


def files(root: Path, names: Iterable[str]) -> list[Path]:
    """The files of these names, and all below the folders of these names, sorted; no bytecode."""
    found: list[Path] = []
    for name in names:
        path = root / name
        below = path.rglob("*") if path.is_dir() else [path]
        found += [each for each in below if each.is_file() and "__pycache__" not in each.parts]
    return sorted(found)


def content(root: Path, names: Iterable[str]) -> list[bytes]:
    """Name and content of each file, for `key`. An executable bit counts, a time does not."""
    parts: list[bytes] = []
    for path in files(root, names):
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        parts += [f"{path.relative_to(root)} {mode}".encode(), path.read_bytes()]
    return parts


def packages_key(root: Path, role: str, base_key: str) -> str:
    """Of the heavy layer: it changes with the lock, with how it is installed, and with what it stands on."""
    if role == "runtime":
        return key([role, base_key, *content(root, RUNTIME_PACKAGES)])
    how = stage((root / DOCKERFILES[role]).read_text(), f"{role}-dependencies")
    return key([role, base_key, how, *content(root, [f"requirements/{role}.lock"])])


def stage(dockerfile: str, name: str) -> str:
    """The lines of one stage, from its FROM to the next."""
    parts = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)
    found = [part for part in parts if part.partition("\n")[0].endswith(f" AS {name}")]
    assert len(found) == 1, f"{len(found)} stages {name}"
    return found[0]


def tag(root: Path, packages_keys: Iterable[str]) -> str:
    """The tag of all three images: their code, how they are put together, and their heavy layers."""
    return key([*packages_keys, *content(root, [*CODE, *sorted(set(DOCKERFILES.values()))])])
