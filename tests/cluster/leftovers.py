"""Finds and clears all that a cluster leaves on a machine. `down` and the cleaning after a kill are one code.

The order matters: processes first (nothing is restarted, nothing holds a mount), then mounts, then network,
then files. Every step is safe to repeat and does nothing when there is nothing.
"""

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster import cgroups, firewall, layout, mounts, network, record, sysctls
from cluster.errors import ClusterError

SHIM_SOCKETS = Path("/run/containerd/s")
LOG_LINKS = Path("/var/log/containers")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
# Places the kubelet, containerd and CNI plugins make for themselves, whatever their settings; children first.
SHARED_FOLDERS = (
    DEVICE_PLUGINS,
    DEVICE_PLUGINS.parent,
    LOG_LINKS,
    SHIM_SOCKETS,
    SHIM_SOCKETS.parent,
    network.CNI_RESULTS,
    network.CNI_RESULTS.parent,
)


def clear(where: layout.Layout) -> int:
    """Clears what a run of this or of the recorded checkout left; how many processes it ended."""
    active = record.read(where.run)
    states = _states(where, active)
    ended = cgroups.kill_members()
    sockets = _shim_sockets(where.run)
    mounts.detach([where.run, *states])
    network.clear()
    firewall.clear()
    cgroups.clear()
    for path in [*sockets, *_log_links(states)]:
        path.unlink(missing_ok=True)
    for state in states:
        _remove(state)
        (state.parent / "kubeconfig").unlink(missing_ok=True)
    if active is not None:
        (DEVICE_PLUGINS / "kubelet.sock").unlink(missing_ok=True)
        _remove_empty(SHARED_FOLDERS)
        sysctls.restore(active.sysctls)
    _remove(where.run)
    return ended


def find(where: layout.Layout) -> list[str]:
    """One line per thing that is left: empty after a good `down`."""
    states = _states(where, record.read(where.run))
    found = [f"process {pid} in the cluster's cgroup" for pid in cgroups.members()]
    found += [f"mount {point}" for point in mounts.find([where.run, *states])]
    found += [f"network link {name}" for name in network.links()]
    found += [f"CNI result {path}" for path in network.cni_results(network.CNI_RESULTS)]
    found += [f"iptables line {line}" for line in firewall.find()]
    found += [f"cgroup {path}" for path in cgroups.find()]
    found += [f"link {path}" for path in _log_links(states)]
    found += [f"folder {path}" for path in (where.run, *states) if path.exists()]
    return found


def _states(where: layout.Layout, active: record.Record | None) -> list[Path]:
    states = [where.state]
    if active is not None and active.cluster and Path(active.cluster) != where.cluster:
        states.append(Path(active.cluster) / "state")
    return states


def _shim_sockets(run: Path) -> list[Path]:
    """Shims listen in containerd's common folder; each of our bundles names its own socket there."""
    found = []
    for file in run.glob("containerd/io.containerd.runtime.v2.task/*/*/address"):
        path = Path(file.read_text().strip().removeprefix("unix://"))
        if path.parent == SHIM_SOCKETS:
            found.append(path)
    return found


def _log_links(states: list[Path]) -> list[Path]:
    """The kubelet's links to container logs are outside its folder, at a fixed place."""
    if not LOG_LINKS.is_dir():
        return []
    links = [path for path in LOG_LINKS.iterdir() if path.is_symlink()]
    return [path for path in links if any(path.readlink().is_relative_to(state) for state in states)]


def _remove_empty(folders: Iterable[Path]) -> None:
    """A folder with anything in it stays: another containerd or kubelet of this machine may use it."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove(folder: Path) -> None:
    """Removes a tree, but never reaches into a mount that is still there."""
    still = mounts.find([folder])
    if still:
        raise ClusterError("clear", f"{still[0]} is still mounted, so {folder} is kept")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
