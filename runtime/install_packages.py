"""Puts the engine's locked packages into an image: used by runtime/Dockerfile, standard library only.

For CPUs there are two ways. With an index that serves torch's CPU build, torch comes from there in the
locked version, and everything else from the lock with its hash. Without one the locked CUDA build is
installed, and what only a GPU loads (`cpu-image.exclude`) is removed again before the layer is written.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Packages that only the CUDA build of torch asks for.
GPU_PACKAGES = re.compile(r"^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
TORCH = re.compile(r"^torch==(\S+)")


def patterns(text: str) -> list[str]:
    """The glob patterns of an exclude file, without its comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def prune(site: Path, excluded: list[str]) -> int:
    """Removes what matches from `site`; returns how many files and folders.

    A pattern that matches nothing ends the program: the packages have changed, and the list has to follow.
    """
    removed = 0
    for pattern in excluded:
        found = sorted(site.glob(pattern))
        if not found:
            raise SystemExit(f"nothing in {site} matches {pattern!r}: bring cpu-image.exclude up to date")
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        removed += len(found)
    return removed


def split_lock(text: str) -> tuple[str, str]:
    """(torch's version, the lock without torch and the packages that only its CUDA build needs)."""
    entries = re.split(r"\n(?=\S)", text.strip("\n"))
    versions = [match.group(1) for entry in entries if (match := TORCH.match(entry))]
    if len(versions) != 1:
        raise SystemExit(f"expected one torch in the lock, found {len(versions)}")
    kept = [entry for entry in entries if not GPU_PACKAGES.match(entry)]
    return versions[0], "\n".join(kept) + "\n"


def install(lock: Path, target: Path, device: str, torch_index_url: str, exclude: Path) -> None:
    if device == "cpu" and torch_index_url:
        version, rest = split_lock(lock.read_text())
        with tempfile.TemporaryDirectory() as folder:
            locked = Path(folder) / "rest.lock"
            locked.write_text(rest)
            _pip("--require-hashes", "--target", str(target), "-r", str(locked))
        _pip("--index-url", torch_index_url, "--target", str(target), f"torch=={version}")
        return
    _pip("--require-hashes", "--target", str(target), "-r", str(lock))
    if device == "cpu":
        prune(target, patterns(exclude.read_text()))


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
    subprocess.run([*command, "--root-user-action=ignore", "--no-deps", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="install the lock into a folder")
    installing.add_argument("--device", choices=("cuda", "cpu"), required=True)
    installing.add_argument("--torch-index-url", default="")
    installing.add_argument("--lock", type=Path, required=True)
    installing.add_argument("--exclude", type=Path, required=True)
    installing.add_argument("--target", type=Path, required=True)
    pruning = commands.add_parser("prune", help="remove what only a GPU needs from a folder")
    pruning.add_argument("site", type=Path)
    pruning.add_argument("exclude", type=Path)
    given = parser.parse_args()
    if given.command == "prune":
        prune(given.site, patterns(given.exclude.read_text()))
    else:
        install(given.lock, given.target, given.device, given.torch_index_url, given.exclude)


if __name__ == "__main__":
    main()
