"""`make images`: the three images for people's own clusters, with the tool and the registry they have.

Pure but for `run`: the command lines are data, so that they are tested without any of the tools.
"""

from collections.abc import Sequence
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

    def push_command(self, role: str) -> list[str]:
        return [self.tool, "push", self.reference(role)]

    def commands(self, root: Path) -> list[tuple[str, list[str], float]]:
        """(name of the step, command line, bound in seconds), in order."""
        builds = [(f"{role} image", self.build(role, root), BUILD_TIMEOUT_S) for role in inputs.ROLES]
        pushes = [(f"push {role}", self.push_command(role), PUSH_TIMEOUT_S) for role in inputs.ROLES]
        return [*builds, *(pushes if self.push else [])]

    def next_step(self) -> str:
        """The line that uses the images."""
        return (
            "helm install firsttoken charts/firsttoken --namespace firsttoken-system --create-namespace"
            f" --set image.registry={self.registry.rstrip('/')} --set image.tag={self.tag}"
        )


def run(
    order: Order, root: Path, log: Path, report: steps.Report, processes: steps.Processes
) -> Sequence[str]:
    """Builds, and pushes when asked; the references. Raises StepError."""
    problem = order.problem()
    if problem:
        raise steps.StepError(problem)
    for name, command, timeout_s in order.commands(root):
        with report.step(name, log):
            processes.run(command, log, timeout_s)
    return [order.reference(role) for role in inputs.ROLES]
