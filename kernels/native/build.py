"""Compiles the kernels of a CPU: hatchling calls this when the package is built, `make setup` in a checkout.

The C files beside this one become one plain shared library an instruction set: no Python in it, no torch,
no runtime detection, so one build serves every version of both. They are made beside the package's modules,
where an editable install finds them, and are made again only when a source or a flag has changed. Without a
compiler, and on processors that there are no kernels for, the package is complete all the same
(`firsttoken_kernels/native.py` says what then happens); `FIRSTTOKEN_NATIVE=required` makes that an error.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGETS = {
    "avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "avx2": ("-march=x86-64-v3",),
}
"""Names as `native.LANES` has them."""
# No -ffast-math: NaN has to stay one, and the exponential rounds by adding and subtracting.
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared", "-Wall", "-Wextra")
HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("*.c"))
FOLDER = HERE.parent / "firsttoken_kernels" / "_native"
PROOF = "built-from"
COMPILE_TIMEOUT_S = 300


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """hatchling looks for a class of this name or any subclass."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: `standard` or `editable`."""
        if self.target_name != "wheel" or not ensure():
            return
        build_data["artifacts"].append("kernels/firsttoken_kernels/_native/*")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform.system().lower()}_{platform.machine()}"


def ensure() -> bool:
    """Leaves current libraries in FOLDER. False: there are none for this machine."""
    is_required = os.environ.get("FIRSTTOKEN_NATIVE") == "required"
    proof = _proof()
    if (FOLDER / PROOF).exists() and (FOLDER / PROOF).read_text() == proof:
        return True
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if sys.platform != "linux" or platform.machine() != "x86_64":
        why = f"there are none for {platform.system()} on {platform.machine()}"
    elif compiler is None:
        why = "there is no C compiler (install gcc, or name one in CC)"
    else:
        _compile(compiler)
        (FOLDER / PROOF).write_text(proof)
        return True
    if is_required:
        raise SystemExit(f"compiled kernels are required (FIRSTTOKEN_NATIVE), but {why}")
    sys.stderr.write(f"warning: no compiled kernels: {why}; decoding on a CPU will be slower\n")
    return False


def _proof() -> str:
    digest = hashlib.sha256(repr((TARGETS, FLAGS)).encode())
    for source in [*SOURCES, *sorted(HERE.glob("*.h"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _compile(compiler: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / PROOF).unlink(missing_ok=True)
    running = []
    for name, march in TARGETS.items():
        fresh = FOLDER / f"{name}.so.{os.getpid()}"
        command = [compiler, *FLAGS, *march, *map(str, SOURCES), "-o", str(fresh)]
        running.append((name, fresh, subprocess.Popen(command, stderr=subprocess.PIPE, text=True)))
    ended = [
        (name, fresh, process.communicate(timeout=COMPILE_TIMEOUT_S), process)
        for name, fresh, process in running
    ]
    for name, fresh, (_, said), process in ended:
        if process.returncode != 0:
            raise SystemExit(f"kernels for {name} do not compile:\n{said}")
        # A process that has the old file open keeps it.
        fresh.replace(FOLDER / f"{name}.so")


if __name__ == "__main__":
    ensure()
