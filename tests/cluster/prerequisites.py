"""What the machine must offer before anything is started, checked first so that failures are early and plain.

Debian packages that are missing are installed; everything else (root, Go, free ports) is asked for.
"""

import os
import shutil
from pathlib import Path

from cluster import addresses, execute, layout, ports
from cluster.errors import ClusterError
from cluster.progress import Progress

# One file per Debian package that shows the package is there. buildah and debootstrap serve the image build,
# gcc and libc6-dev the kernels in C, before the cluster exists on a fresh machine: one apt run for all.
PACKAGE_PROOFS = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables-save",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "socat": "socat",
    "openssl": "openssl",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "libc6-dev": "/usr/include/stdint.h",
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            "prerequisites", "the cluster needs root (namespaces, mounts, iptables): run it with sudo"
        )


def missing_packages() -> list[str]:
    """Debian packages whose proof is not on this machine, in the table's order."""
    return [package for package, proof in PACKAGE_PROOFS.items() if not _is_there(proof)]


def _is_there(proof: str) -> bool:
    """A program, or with its whole path any file."""
    return (
        Path(proof).exists() if proof.startswith("/") else shutil.which(proof, path=SYSTEM_PATH) is not None
    )


def install_packages(where: layout.Layout, progress: Progress) -> None:
    """Installs missing Debian packages with apt-get; says what to install elsewhere."""
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(
            "prerequisites",
            f"this is not Debian (no apt-get): install what these packages hold: {', '.join(missing)}",
        )
    log = where.log("apt")
    progress.say("apt", f"installing {', '.join(missing)} (log {log})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    execute.run_logged(["apt-get", "update"], log=log, timeout_s=300, env=environment)
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    execute.run_logged(install, log=log, timeout_s=900, env=environment)
    left = missing_packages()
    if left:
        raise ClusterError("apt", f"installed, yet nothing shows {', '.join(left)}", log)


def require_short_paths(where: layout.Layout) -> None:
    socket = layout.longest_socket(where)
    excess = len(str(socket)) - layout.LONGEST_SOCKET_PATH
    if excess > 0:
        raise ClusterError(
            "prerequisites",
            f"the checkout's path is {excess} characters too long for the kubelet's socket {socket}",
        )


def require_free_ports() -> None:
    """Fails when another program holds one of the cluster's ports; called after leftovers were cleared."""
    listening = ports.listening()
    for component, wanted in addresses.PORTS.items():
        for port in wanted:
            if port in listening:
                raise ClusterError(
                    "prerequisites",
                    f"port {port}, needed by the {component}, is in use by {ports.owner(port)}",
                )


def require_cgroups() -> None:
    if not Path("/sys/fs/cgroup").is_dir():
        raise ClusterError("prerequisites", "no cgroups are mounted at /sys/fs/cgroup")
