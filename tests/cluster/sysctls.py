"""Kernel settings the cluster needs, raised at the start and put back by `down`."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster import execute

ROOT = Path("/proc/sys")


@dataclass(frozen=True)
class Setting:
    """A file under /proc/sys and the value it needs at least."""

    name: str
    least: int


# kube-proxy and the kubelet change the last group themselves; they are listed so that they are put back.
NEEDED = (
    Setting("net/ipv4/ip_forward", 1),
    Setting("net/bridge/bridge-nf-call-iptables", 1),
    Setting("fs/inotify/max_user_instances", 1024),
    Setting("fs/inotify/max_user_watches", 262144),
)
TOUCHED = (
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def read(root: Path = ROOT) -> dict[str, str]:
    """Present values of every setting the cluster changes; settings this kernel lacks are left out."""
    names = [*(setting.name for setting in NEEDED), *TOUCHED]
    return {name: (root / name).read_text().strip() for name in names if (root / name).exists()}


def raise_to_needed(root: Path = ROOT) -> None:
    """Loads the modules (built into many kernels, so failing to is no failure), raises what is too low."""
    execute.run(["modprobe", "--all", "--quiet", "br_netfilter", "overlay"], timeout_s=20, check=False)
    for setting in NEEDED:
        path = root / setting.name
        if path.exists() and int(path.read_text()) < setting.least:
            path.write_text(str(setting.least))


def restore(values: Mapping[str, str], root: Path = ROOT) -> None:
    """Writes back recorded values that differ; a setting that is refused was not ours to change either."""
    for name, value in values.items():
        path = root / name
        if path.exists() and path.read_text().strip() != value:
            with contextlib.suppress(PermissionError):
                path.write_text(value)
