"""The base image of the local cluster: Debian's minimal system with its Python, made by debootstrap.

Used where no image registry can be reached. People's own builds start from `python:3.12-slim`.
"""

import shutil
from pathlib import Path

from cluster import mounts
from images import buildah, inputs
from local import steps

SUITE = "bookworm"
PYTHON_VERSION = "3.11"  # the suite's
PACKAGES = ("python3", "python3-pip", "ca-certificates")
DOCKERFILE = Path(__file__).parent / "Dockerfile.base"
# Package lists and archives that the installation leaves behind.
LEAVINGS = ("var/cache/apt/*.bin", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "var/log/*.log")


def key() -> str:
    return inputs.key([SUITE, *PACKAGES, *LEAVINGS, DOCKERFILE.read_bytes()])


def name() -> str:
    """The image's name in the builder's store."""
    return f"localhost/firsttoken/base:{key()}"


def ensure(builder: buildah.Buildah, scratch: Path, report: steps.Report, processes: steps.Processes) -> None:
    """Makes the base image unless the store has it. About a minute. Needs root (debootstrap)."""
    if builder.has(name()):
        return
    folder = scratch / "base"
    with report.step("base image", builder.log):
        try:
            _clear(folder)  # of a killed run
            folder.mkdir(parents=True)
            _bootstrap(folder / "rootfs", builder, processes)
            pack: steps.Command = ["tar", "-C", folder / "rootfs", "-cf", folder / "rootfs.tar", "."]
            processes.run(pack, builder.log, timeout_s=300)
            builder.build(folder, DOCKERFILE, name())
        finally:
            _clear(folder)


def _bootstrap(root: Path, builder: buildah.Buildah, processes: steps.Processes) -> None:
    included = f"--include={','.join(PACKAGES)}"
    command: steps.Command = ["debootstrap", "--variant=minbase", included, SUITE, root]
    processes.run(command, builder.log, timeout_s=900)
    _tidy(root)


def _clear(folder: Path) -> None:
    """Removes the folder with what debootstrap mounts in it while it works."""
    mounts.detach([folder])
    if folder.exists():
        shutil.rmtree(folder)


def _tidy(root: Path) -> None:
    for pattern in LEAVINGS:
        for path in root.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
