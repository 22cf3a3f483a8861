"""Where everything lives.

Three places with three lifetimes: `.cluster/` of the checkout (what this cluster is made of; ignored by git),
the cache (dear to make, shared by checkouts, safe to delete while no cluster runs) and /run (what a reboot
should forget; its short paths keep unix sockets under the kernel's 107 characters, and its fixed place lets
one checkout find what another left behind).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
RUN = Path("/run/firsttoken-cluster")
LOCK = Path("/run/firsttoken-cluster.lock")
LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class Layout:
    """Paths of one checkout's cluster."""

    checkout: Path
    cache: Path
    run: Path = RUN

    @property
    def cluster(self) -> Path:
        return self.checkout / ".cluster"

    @property
    def state(self) -> Path:
        """Removed as a whole by `down`; nothing outside this package may keep anything in it."""
        return self.cluster / "state"

    @property
    def logs(self) -> Path:
        return self.cluster / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def bin(self) -> Path:
        return self.cluster / "bin"

    @property
    def kubeconfig(self) -> Path:
        return self.cluster / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def kubelet(self) -> Path:
        return self.state / "kubelet"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def image_store(self) -> Path:
        """containerd's root: images stay usable for the next run and for other checkouts."""
        return self.cache / "containerd"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"


def of_checkout(environment: Mapping[str, str] = os.environ) -> Layout:
    """The layout of the checkout this file is in; `FIRSTTOKEN_CACHE` moves the cache."""
    cache = environment.get("FIRSTTOKEN_CACHE") or "~/.cache/firsttoken"
    return Layout(checkout=SOURCE.parent.parent, cache=Path(cache).expanduser().resolve())


def longest_socket(layout: Layout) -> Path:
    """The longest socket path the kubelet binds below the checkout."""
    return layout.kubelet / "pod-resources" / "kubelet.sock"
