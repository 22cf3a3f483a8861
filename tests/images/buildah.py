"""buildah with a store of its own in the cache: it never meets the images of the person at the machine."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local import steps

# Where Debian keeps the certificates it trusts; a machine behind an inspecting proxy has its own in there,
# and an install inside a build has to trust the same.
CERTIFICATES = Path("/etc/ssl/certs")


@dataclass(frozen=True)
class Buildah:
    """Builds and pushes from one store. `runroot` is short-lived: it holds locks and mount points."""

    root: Path
    runroot: Path
    log: Path
    processes: steps.Processes

    def has(self, image: str) -> bool:
        command = [*self._global(), "images", "--quiet", image]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0

    def build(
        self,
        context: Path,
        dockerfile: Path,
        image: str,
        target: str = "",
        arguments: Mapping[str, str] | None = None,
        stages: Mapping[str, str] | None = None,
        fixed_times: bool = False,
        timeout_s: float = 900,
    ) -> None:
        """Builds `target` of the Dockerfile as `image`. `stages`: images to use in place of its stages."""
        command = [*self._global(), "build", "--layers", "--isolation", "chroot", "--network", "host"]
        command += ["--format", "oci", "--file", str(dockerfile), "--tag", image]
        if CERTIFICATES.is_dir():
            command += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        command += ["--target", target] if target else []
        for name, value in (arguments or {}).items():
            command += ["--build-arg", f"{name}={value}"]
        for name, value in (stages or {}).items():
            command += ["--build-context", f"{name}=docker-image://{value}"]
        command += ["--timestamp", "0"] if fixed_times else []
        self.processes.run([*command, str(context)], self.log, timeout_s)

    def push(self, image: str, layout: Path, name: str, timeout_s: float = 600) -> None:
        """Copies `image` into the OCI layout as `name`. Layers that it has already are not copied again."""
        command = [*self._global(), "push", "--quiet", "--compression-level", "1", "--format", "oci"]
        self.processes.run([*command, image, f"oci:{layout}:{name}"], self.log, timeout_s)

    def discard_containers(self) -> None:
        """Removes what a killed build left."""
        command = [*self._global(), "rm", "--all"]
        subprocess.run(command, capture_output=True, check=False, timeout=120)

    def _global(self) -> Sequence[str]:
        program = shutil.which("buildah")
        if program is None:
            raise steps.StepError("buildah is not installed: run `make setup` as root")
        return [program, "--root", str(self.root), "--runroot", str(self.runroot)]
