"""What a figure was measured on: processor, load, versions, model. Recorded beside every result."""

import hashlib
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

FEATURES = (
    *("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"),
    *("neon", "sve"),
)
PACKAGES = ("firsttoken", "torch", "triton", "transformers", "aiohttp", "numpy")


@dataclass(frozen=True)
class Machine:
    """Does not change during a run."""

    processor: str
    cores: int
    features: tuple[str, ...]
    memory_bytes: int
    system: str
    python: str
    versions: dict[str, str]


def look() -> Machine:
    return Machine(
        processor=_processor(Path("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        features=_features(Path("/proc/cpuinfo")),
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        python=platform.python_version(),
        versions=versions(),
    )


def load_average() -> tuple[float, float, float]:
    """Over 1, 5 and 15 minutes."""
    return psutil.getloadavg()


def busy_seconds(core: int, stat: Path = Path("/proc/stat")) -> float:
    """Time since the start of the machine in which a core was not idle, time taken by its host included."""
    for line in stat.read_text().splitlines():
        name, *ticks = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _iowait, *others = map(int, ticks[:8])
            return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    raise ValueError(f"{stat} has no core {core}")


def command() -> list[str]:
    """As it was typed, but for the path of the program."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def digest(source: Path) -> str:
    """sha256 of a .gguf, or of a folder's files by name and content."""
    total = hashlib.sha256()
    if source.is_file():
        return _file_digest(source)
    for file in sorted(path for path in source.iterdir() if path.is_file()):
        total.update(f"{file.name}\0{_file_digest(file)}\n".encode())
    return total.hexdigest()


def _file_digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _lines(cpuinfo: Path) -> list[str]:
    return cpuinfo.read_text().splitlines() if cpuinfo.exists() else []


def _processor(cpuinfo: Path) -> str:
    fields: dict[str, str] = {}
    for line in _lines(cpuinfo):
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _features(cpuinfo: Path) -> tuple[str, ...]:
    flags: set[str] = set()
    for line in _lines(cpuinfo):
        if line.startswith(("flags", "Features")):
            flags |= set(line.partition(":")[2].split())
    return tuple(name for name in FEATURES if name in flags or (name == "neon" and "asimd" in flags))
