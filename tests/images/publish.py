"""`make images`: the three images for people's own clusters, with the tool and the registry they have.

Pure but for `run`: the command lines are data, so that they are tested without any of the tools.
"""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images import inputs
from local import steps

TOOLS = ("docker", "podman", "buildah")
DEVICES = ("cpu", "cuda")
BUILD_TIMEOUT_S = 3600.0
PUSH_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Order:
    """What the person at the terminal asked for. Empty strings mean: not given."""

    tool: str
    registry: str
    tag: str
    device: str = "cpu"
    base: str = ""
    torch_index_url: str = ""
    push: bool = False

    def problem(self) -> str:
        """What is wrong with it, naming the option; "" when nothing is."""
        if self.tool not in TOOLS:
            return f"TOOL={self.tool}: one of {', '.join(TOOLS)}"
        if self.device not in DEVICES:
            return f"DEVICE={self.device}: one of {', '.join(DEVICES)}"
        if not self.registry:
            return "REGISTRY is missing, for example REGISTRY=registry.example.com/team"
        if not self.tag:
            return "TAG is missing, for example TAG=0.1.0"
        if self.torch_index_url and self.device != "cpu":
            return "TORCH_INDEX_URL is for DEVICE=cpu only: the locked torch is the CUDA build"
        return ""

    def reference(self, role: str) -> str:
        return f"{self.registry.rstrip('/')}/firsttoken/{role}:{self.tag}"

    def build(self, role: str, root: Path) -> list[str]:
        """The command line that builds one image."""
        arguments = {"BASE": self.base} if self.base else {}
        if role == "runtime":
            arguments["DEVICE"] = self.device
            if self.torch_index_url:
                arguments["TORCH_INDEX_URL"] = self.torch_index_url
        command = [self.tool, "build"]
        command += ["--layers", "--format", "docker"] if self.tool == "buildah" else []
        command += ["--file", str(root / inputs.DOCKERFILES[role]), "--target", role]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        return [*command, "--tag", self.reference(role), str(root)]

    def push_command(self, role: str, digests: Path) -> list[str]:
        """The command line that pushes one image; buildah and podman write its digest into `digests`."""
        file = [] if self.tool == "docker" else ["--digestfile", str(digests / role)]
        return [self.tool, "push", *file, self.reference(role)]

    def commands(self, root: Path, digests: Path) -> list[tuple[str, list[str], float]]:
        """(name of the step, command line, bound in seconds), in order."""
        builds = [(f"{role} image", self.build(role, root), BUILD_TIMEOUT_S) for role in inputs.ROLES]
        pushes = [(f"push {role}", self.push_command(role, digests), PUSH_TIMEOUT_S) for role in inputs.ROLES]
        return [*builds, *(pushes if self.push else [])]

    def next_step(self, digests: Mapping[str, str]) -> str:
        """The line that uses the images: by digest where the registry has said which."""
        pins = [f"--set images.{role}.digest={digest}" for role, digest in digests.items()]
        names = [f"--set image.registry={self.registry.rstrip('/')}", f"--set image.tag={self.tag}"]
        command = "helm install firsttoken charts/firsttoken --namespace firsttoken-system --create-namespace"
        return " \\\n  ".join([command, *names, *pins])


def run(
    order: Order, root: Path, log: Path, report: steps.Report, processes: steps.Processes
) -> Sequence[str]:
    """Builds, and pushes when asked; what to tell the person, line by line. Raises StepError."""
    problem = order.problem()
    if problem:
        raise steps.StepError(problem)
    digests = log.parent / "digests"
    digests.mkdir(parents=True, exist_ok=True)
    for name, command, timeout_s in order.commands(root, digests):
        with report.step(name, log):
            processes.run(command, log, timeout_s)
    pushed = {role: _digest(order, role, digests) for role in inputs.ROLES} if order.push else {}
    return [*(order.reference(role) for role in inputs.ROLES), "", order.next_step(pushed)]


def _digest(order: Order, role: str, digests: Path) -> str:
    """What the registry calls the image that was just pushed."""
    if order.tool != "docker":
        return (digests / role).read_text().strip()
    command = ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", order.reference(role)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise steps.StepError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip().rpartition("@")[2]
