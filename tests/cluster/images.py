"""containerd's image store: import archives, ask what is there, drop containers an earlier run left.

The store is shared by runs and checkouts. Kubernetes sees images of the namespace `k8s.io` only.
"""

import re
import tarfile
from pathlib import Path

from cluster import execute, layout
from cluster.errors import ClusterError

NAMESPACE = "k8s.io"
IMPORT_TIMEOUT_S = 900
TIMEOUT_S = 60
_UNPACKING = re.compile(r"^unpacking (\S+)", re.MULTILINE)


def load(where: layout.Layout, archive: Path) -> list[str]:
    """Imports a docker or OCI archive; the references it holds. The cluster must be running.

    Pods find an image by exactly these references, with `imagePullPolicy` Never or IfNotPresent.
    """
    if not archive.is_file():
        raise ClusterError("load-image", f"there is no file {archive}")
    if not tarfile.is_tarfile(archive):
        raise ClusterError(
            "load-image",
            f"{archive} is no tar archive: give one made by docker save, podman save or buildah push",
        )
    output = _ctr(where, "images", "import", str(archive.resolve()), timeout_s=IMPORT_TIMEOUT_S)
    return _UNPACKING.findall(output)


def is_loaded(where: layout.Layout, reference: str) -> bool:
    """Whether the store holds an image under this full reference."""
    return reference in _ctr(where, "images", "list", "--quiet").split()


def purge_containers(where: layout.Layout) -> int:
    """Removes containers (and their snapshots) of earlier runs from the store; how many there were."""
    found = _ctr(where, "containers", "list", "--quiet").split()
    if found:
        _ctr(where, "containers", "delete", *found)
    return len(found)


def is_serving(where: layout.Layout) -> bool:
    """Whether containerd answers and its part for the kubelet has loaded."""
    if not where.containerd_socket.exists():
        return False
    try:
        rows = _ctr(where, "plugins", "list", "id==cri").splitlines()
    except ClusterError:
        return False
    return any(row.split()[-1] == "ok" for row in rows[1:] if row.strip())


def _ctr(where: layout.Layout, *words: str, timeout_s: float = TIMEOUT_S) -> str:
    if not where.containerd_socket.exists():
        raise ClusterError(
            "containerd", "the cluster is not running: start it with `python3 tests/cluster up`"
        )
    argv = ["ctr", "--address", str(where.containerd_socket), "--namespace", NAMESPACE, *words]
    return execute.run(argv, timeout_s=timeout_s)
