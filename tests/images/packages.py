"""The heavy layer of each image: its locked packages, made once per lock.

Operator and sidecar: the stage `…-dependencies` of operator/Dockerfile, built by buildah. The engine's
packages are gigabytes, and inside a build they would be unpacked, committed and copied again; here they are
installed from the same lock with the same hashes into a folder of the cache (files shared with the
installer's own cache), pruned by the same list and script as in runtime/Dockerfile, and that folder is the
layer.
"""

import shutil
import sys
from pathlib import Path

from images import assemble, base, buildah, folders, inputs, layout
from local import steps

INSTALL_TIMEOUT_S = 1800.0


def ensure(
    role: str, root: Path, store: layout.Layout, builder: buildah.Buildah, uv: Path, report: steps.Report
) -> layout.Image:
    """The image of `role`'s packages on the base image. Raises StepError."""
    key = inputs.packages_key(root, role, base.key())
    record = store.folder.parent / "packages" / f"{role}-{key}.json"
    if record.exists():
        image = layout.image_from_json(record.read_text())
        if _is_usable(image, store):
            record.touch()
            return image
    with report.step(f"packages of the {role} image", builder.log):
        if role == "runtime":
            image = _from_folder(root, record.with_suffix(""), store, builder, uv)
        else:
            image = _from_dockerfile(role, key, root, store, builder)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(image.to_json())
    return image


def _is_usable(image: layout.Image, store: layout.Layout) -> bool:
    blobs = [layer.blob for layer in image.layers]
    return all(
        Path(blob.folder).is_dir() if blob.folder else store.blob(blob.digest).exists() for blob in blobs
    )


def _from_dockerfile(
    role: str, key: str, root: Path, store: layout.Layout, builder: buildah.Buildah
) -> layout.Image:
    stage = f"{role}-dependencies"
    image = f"localhost/firsttoken/{stage}:{key}"
    builder.build(root, root / inputs.DOCKERFILES[role], image, stage, {"BASE": base.name()})
    builder.push(image, store.folder, f"{stage}-{key}")
    return store.image(f"{stage}-{key}")


def _from_folder(
    root: Path, folder: Path, store: layout.Layout, builder: buildah.Buildah, uv: Path
) -> layout.Image:
    name = f"base-{base.key()}"
    builder.push(base.name(), store.folder, name)
    _install(root, folder, builder, uv)
    hasher = folders.Hasher()
    folders.write_layer(folder, folders.PACKAGES_PREFIX, hasher)
    return assemble.with_layer(store.image(name), layout.Blob(hasher.digest, hasher.size, str(folder)))


def _install(root: Path, folder: Path, builder: buildah.Buildah, uv: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    run, log = builder.processes.run, builder.log
    install: steps.Command = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    version: steps.Command = ["--python-version", base.PYTHON_VERSION, "--target", folder]
    run([*install, *version, "-r", root / "requirements/runtime.lock"], log, INSTALL_TIMEOUT_S)
    script = root / "runtime/install_packages.py"
    run([sys.executable, script, "prune", folder, root / "runtime/cpu-image.exclude"], log, 120)
    if f"{sys.version_info.major}.{sys.version_info.minor}" == base.PYTHON_VERSION:
        # Another version's bytecode would be ignored; without any, an engine takes seconds longer to start.
        compile_all: steps.Command = [
            sys.executable,
            "-m",
            "compileall",
            "-q",
            "-j",
            "0",
            "--invalidation-mode",
            "unchecked-hash",
        ]
        # Status 1: some files are written for a later Python, and are not for this one.
        run([*compile_all, folder], log, 600, accepted=(0, 1))
