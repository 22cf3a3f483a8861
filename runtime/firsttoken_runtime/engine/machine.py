"""Facts about the machine this process may use: threads and memory, as its control group limits them.

A container sees the whole host in /proc; what it may use is written in its control group (version 2,
else version 1). All reads are at the edge here; the rest of the engine gets numbers.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes a huge number where there is no limit."""


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    limit_bytes: int
    available_bytes: int


def memory(cgroup: Path = _CGROUP) -> Memory:
    """The smaller of the machine's and the control group's memory."""
    host = psutil.virtual_memory()
    limit, available = host.total, host.available
    group = _group_memory(cgroup)
    if group is not None:
        group_limit, group_used = group
        limit = min(limit, group_limit)
        available = min(available, group_limit - group_used)
    return Memory(limit, max(available, 0))


def _group_memory(cgroup: Path) -> tuple[int, int] | None:
    """(limit, used without what can be dropped), or None without a limit."""
    for folder, limit_name, used_name in (
        (cgroup, "memory.max", "memory.current"),
        (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit = _read_number(folder / limit_name)
        used = _read_number(folder / used_name)
        if limit is not None and used is not None and limit < _UNLIMITED_BYTES:
            return limit, max(used - _file_cache_bytes(folder / "memory.stat"), 0)
    return None


def _file_cache_bytes(stat: Path) -> int:
    """Page cache that the kernel drops under pressure (a mapped model file, for one)."""
    keys = {"inactive_file", "active_file"}
    try:
        pairs = [line.split() for line in stat.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(value) for key, value in pairs if key in keys)


def threads(cgroup: Path = _CGROUP) -> int:
    """Whole CPUs this process may use: the quota rounded down, at most the physical cores, at least 1."""
    cores = psutil.cpu_count(logical=False) or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = _cpu_quota(cgroup)
    limits = [cores, allowed] + ([int(quota)] if quota is not None else [])
    return max(min(limits), 1)


def _cpu_quota(cgroup: Path) -> float | None:
    """CPUs per period, or None without a quota."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        version_1 = cgroup / "cpu"
        microseconds = _read_number(version_1 / "cpu.cfs_quota_us")
        length = _read_number(version_1 / "cpu.cfs_period_us")
        if microseconds is None or length is None or microseconds <= 0:
            return None
        return microseconds / length
    return None if quota == "max" else int(quota) / int(period)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
