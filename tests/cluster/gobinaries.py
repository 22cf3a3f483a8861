"""Builds the Go programs once and caches them under a key of everything that decides their content.

Each program is a folder beside this file with its own go.mod. The Kubernetes one is a single binary that is
six programs by the name it is called by: one link step instead of six, and a fifth of the size.
"""

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cluster import addresses, cachekey, execute, layout
from cluster.errors import ClusterError
from cluster.progress import Progress

VERSION_PACKAGE = "k8s.io/component-base/version"
OLDEST_GO = (1, 25)
BUILD_TIMEOUT_S = 3600
NEWS_EVERY_S = 30


@dataclass(frozen=True)
class Program:
    """A Go module folder beside this file and the linker's extra words for it."""

    name: str
    linker_flags: str = ""

    @property
    def folder(self) -> Path:
        return layout.SOURCE / self.name

    @property
    def build_flags(self) -> list[str]:
        return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {self.linker_flags}".strip()]


_MAJOR, _MINOR, _PATCH = addresses.KUBERNETES_VERSION.split(".")
KUBERNETES = Program(
    "kubernetes",
    f"-X {VERSION_PACKAGE}.gitVersion=v{addresses.KUBERNETES_VERSION}"
    f" -X {VERSION_PACKAGE}.gitMajor={_MAJOR} -X {VERSION_PACKAGE}.gitMinor={_MINOR}",
)
COREDNS = Program("coredns")
PAUSE = Program("pause")
PROBE = Program("probe")
NEEDED_TO_START = (KUBERNETES, COREDNS, PAUSE)


def go_command() -> str:
    """Path of a Go that is new enough."""
    command = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    wanted = ".".join(map(str, OLDEST_GO))
    if command is None:
        raise ClusterError(
            "go",
            f"Go {wanted} or newer builds the cluster's programs and is not installed: https://go.dev/dl",
        )
    if version_of(go_version(command)) < OLDEST_GO:
        raise ClusterError(
            "go", f"{command} is {go_version(command)}; {wanted} or newer is needed: https://go.dev/dl"
        )
    return command


def go_version(command: str) -> str:
    return execute.run([command, "version"], timeout_s=30).strip()


def version_of(text: str) -> tuple[int, int]:
    """(1, 26) of `go version go1.26.8 linux/amd64`; (0, 0) for anything else."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def cached(program: Program, cache: Path, version: str) -> Path:
    """Where the binary of these sources, these flags and this Go is, or will be."""
    sources = [*program.folder.glob("*.go"), *program.folder.glob("go.*")]
    key = cachekey.of(sources, [*program.build_flags, version, "CGO_ENABLED=0"])
    return cache / "go" / f"{program.name}-{key}" / program.name


def ensure(program: Program, where: layout.Layout, progress: Progress) -> Path:
    """The program's binary, built when the cache does not have it."""
    command = go_command()
    binary = cached(program, where.cache, go_version(command))
    if not binary.exists():
        _build(command, program, binary, where.log(f"build-{program.name}"), progress)
    return binary


def _build(command: str, program: Program, binary: Path, log: Path, progress: Progress) -> None:
    """`go build -v` prints one line per package it compiles: that is the progress there is."""
    progress.say(f"build {program.name}", f"started (log {log})")
    binary.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    unfinished = binary.with_name(f"{program.name}.{os.getpid()}.part")
    argv = [command, "build", "-v", *program.build_flags, "-o", str(unfinished), "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    started_s = news_s = time.monotonic()
    with log.open("wb") as output:
        build = subprocess.Popen(
            argv,
            cwd=program.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while build.poll() is None:
                time.sleep(0.2)
                now_s = time.monotonic()
                if now_s - news_s >= NEWS_EVERY_S:
                    news_s = now_s
                    packages = log.read_bytes().count(b"\n")
                    progress.say(f"build {program.name}", f"{packages} packages so far")
                if now_s - started_s > BUILD_TIMEOUT_S:
                    raise ClusterError(f"build {program.name}", f"took more than {BUILD_TIMEOUT_S} s", log)
        finally:
            if build.poll() is None:
                build.terminate()
                build.wait(timeout=30)
    if build.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise ClusterError(f"build {program.name}", f"go build exited {build.returncode}", log)
    unfinished.replace(binary)
    progress.say(f"build {program.name}", f"done in {time.monotonic() - started_s:.0f} s")
