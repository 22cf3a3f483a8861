"""One cgroup holds every process of the cluster, daemons and containers, whoever their parents are now.

Membership is inherited and kept by the kernel, so what a killed run left is found without process names or
process ids that may have been reused. Under `<root>/system` are our daemons (and containerd's shims), under
`<root>/kubepods` the kubelet's pods. With cgroup v1 the same path exists in each hierarchy; daemons join only
the one named by `tracking()`, so that limits of the session that started them stay in force.
"""

import os
import signal
import time
from pathlib import Path

from cluster import addresses
from cluster.errors import ClusterError

MOUNT = Path("/sys/fs/cgroup")
KILL_TIMEOUT_S = 20


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """Roots of the mounted hierarchies: the one of cgroup v2, or one per controller of v1."""
    if (mount / "cgroup.controllers").exists():
        return [mount]
    return sorted(
        folder for folder in mount.iterdir() if folder.is_dir() and (folder / "cgroup.procs").exists()
    )


def tracking(mount: Path = MOUNT) -> Path:
    """The hierarchy whose membership we read: v2, or v1's `pids`, which containers always join."""
    if (mount / "cgroup.controllers").exists():
        return mount
    if not (mount / "pids").is_dir():
        raise ClusterError("cgroups", f"neither cgroup v2 nor the v1 controller `pids` is mounted at {mount}")
    return mount / "pids"


def make(mount: Path = MOUNT) -> None:
    """Creates our cgroup in every hierarchy; a v1 cpuset is unusable until it has CPUs and memory nodes."""
    for hierarchy in hierarchies(mount):
        folder = hierarchy / addresses.CGROUP
        folder.mkdir(exist_ok=True)
        if (hierarchy / "cgroup.controllers").exists():
            _delegate(hierarchy, folder)
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = folder / name
            if hierarchy.name == "cpuset" and file.exists() and not file.read_text().strip():
                file.write_text((hierarchy / name).read_text())
    (tracking(mount) / addresses.CGROUP / "system").mkdir(exist_ok=True)


def _delegate(hierarchy: Path, folder: Path) -> None:
    """With v2 a controller reaches a child only where its parent passes it on."""
    for parent in (hierarchy, folder):
        offered = (parent / "cgroup.controllers").read_text().split()
        (parent / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in offered))


def join() -> None:
    """Moves the calling process among the cluster's daemons; runs in a child before exec."""
    (tracking() / addresses.CGROUP / "system" / "cgroup.procs").write_text("0")


def members(mount: Path = MOUNT) -> list[int]:
    """Process ids of the whole cluster, our own left out."""
    found: list[int] = []
    for procs in (tracking(mount) / addresses.CGROUP).rglob("cgroup.procs"):
        try:
            found.extend(int(pid) for pid in procs.read_text().split())
        except FileNotFoundError:
            continue  # the cgroup went away while we looked
    return [pid for pid in found if pid != os.getpid()]


def kill_members() -> int:
    """Kills every process of the cluster and waits until none is left; how many were seen."""
    seen: set[int] = set()
    deadline_s = time.monotonic() + KILL_TIMEOUT_S
    while pids := members():
        seen.update(pids)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline_s:
            raise ClusterError(
                "cgroups", f"processes {sorted(pids)} do not end {KILL_TIMEOUT_S} s after SIGKILL"
            )
        time.sleep(0.02)
    return len(seen)


def clear(mount: Path = MOUNT) -> None:
    """Removes our cgroups, children first; the kernel may need a moment after the last process ended."""
    for hierarchy in hierarchies(mount):
        root = hierarchy / addresses.CGROUP
        if root.is_dir():
            for folder in [*sorted((f for f in root.rglob("*") if f.is_dir()), reverse=True), root]:
                _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(100):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise ClusterError("cgroups", f"{folder} stays busy")


def find(mount: Path = MOUNT) -> list[Path]:
    return [h / addresses.CGROUP for h in hierarchies(mount) if (h / addresses.CGROUP).is_dir()]
