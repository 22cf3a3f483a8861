"""The base image of the local cluster: Debian's minimal system with its Python, made by debootstrap.

Used where no image registry can be reached. People's own builds start from `python:3.12-slim`.
"""

import shutil
import tempfile
from pathlib import Path

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
    scratch.mkdir(parents=True, exist_ok=True)
    with report.step("base image"), tempfile.TemporaryDirectory(dir=scratch) as temporary:
        folder = Path(temporary)
        root = folder / "rootfs"
        command: steps.Command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            SUITE,
            root,
        ]
        processes.run(command, builder.log, timeout_s=900)
        _tidy(root)
        processes.run(["tar", "-C", root, "-cf", folder / "rootfs.tar", "."], builder.log, timeout_s=300)
        builder.build(folder, DOCKERFILE, name())


def _tidy(root: Path) -> None:
    for pattern in LEAVINGS:
        for path in root.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
