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
        return bool(self.identifier(image))

    def build(
        self,
        context: Path,
        dockerfile: Path,
        image: str,
        target: str = "",
        arguments: Mapping[str, str] | None = None,
        stages: Mapping[str, str] | None = None,
        fixed_times: bool = False,
        cached: bool = True,
        timeout_s: float = 900,
    ) -> None:
        """Builds `target` of the Dockerfile as `image`. `stages`: images to use in place of its stages.

        `cached` keeps an image of every instruction for the next build: worth it only for dear ones.
        """
        command = [
            *self._global(),
            "build",
            f"--layers={str(cached).lower()}",
            "--isolation",
            "chroot",
            "--network",
            "host",
        ]
        command += ["--format", "oci", "--file", str(dockerfile), "--tag", image]
        if CERTIFICATES.is_dir():
            command += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        command += ["--target", target] if target else []
        for name, value in (arguments or {}).items():
            command += ["--build-arg", f"{name}={value}"]
        for name, value in (stages or {}).items():
            command += ["--build-context", f"{name}=docker-image://{value}"]
        command += ["--timestamp", "0"] if fixed_times else []
        replaced = self.identifier(image)
        self.processes.run([*command, str(context)], self.log, timeout_s)
        if replaced and replaced != self.identifier(image):
            self.remove(replaced)

    def push(self, image: str, layout: Path, name: str, timeout_s: float = 600) -> None:
        """Copies `image` into the OCI layout as `name`. Layers that it has already are not copied again."""
        command = [*self._global(), "push", "--quiet", "--compression-level", "1", "--format", "oci"]
        self.processes.run([*command, image, f"oci:{layout}:{name}"], self.log, timeout_s)

    def discard_containers(self) -> None:
        """Removes what a killed build left."""
        command = [*self._global(), "rm", "--all"]
        subprocess.run(command, capture_output=True, check=False, timeout=120)

    def identifier(self, image: str) -> str:
        """What the store calls the image of that name; "" when there is none."""
        command = [*self._global(), "images", "--quiet", "--no-trunc", image]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()

    def remove(self, identifier: str) -> None:
        """Removes an image unless it has a name or others are built on it."""
        command = [*self._global(), "rmi", identifier]
        subprocess.run(command, capture_output=True, check=False, timeout=60)

    def _global(self) -> Sequence[str]:
        program = shutil.which("buildah")
        if program is None:
            raise steps.StepError("buildah is not installed: run `make setup` as root")
        return [program, "--root", str(self.root), "--runroot", str(self.runroot)]
