"""The bridge pods hang on. It is made before the first pod, since its address is the node's."""

import json
from pathlib import Path

from cluster import addresses, execute

TIMEOUT_S = 20
CNI_RESULTS = Path("/var/lib/cni/results")


def make_bridge() -> None:
    """Creates the bridge with the node's address, up even while no pod is plugged in."""
    _ip("link", "add", addresses.BRIDGE, "type", "bridge")
    _ip(
        "address",
        "add",
        f"{addresses.NODE_IP}/{addresses.POD_RANGE.partition('/')[2]}",
        "dev",
        addresses.BRIDGE,
    )
    _ip("link", "set", addresses.BRIDGE, "up")


def links() -> list[str]:
    """The bridge and the host ends of pods' veth pairs, [] when there is no bridge."""
    if not Path("/sys/class/net", addresses.BRIDGE).exists():
        return []
    return [
        *(port.name for port in Path("/sys/class/net", addresses.BRIDGE, "brif").iterdir()),
        addresses.BRIDGE,
    ]


def clear() -> None:
    """Deletes veth pairs, the bridge, CNI results of our network and connections tracked to its pods."""
    found = links()
    for name in found:
        execute.run(["ip", "link", "delete", name], timeout_s=TIMEOUT_S, check=False)
    for path in cni_results(CNI_RESULTS):
        path.unlink(missing_ok=True)
    if found:
        forget = ["conntrack", "--delete", "--reply-src", addresses.POD_RANGE]
        execute.run(forget, timeout_s=TIMEOUT_S, check=False)


def cni_results(folder: Path) -> list[Path]:
    """Cached results of our network; those of loopback interfaces name a namespace under our run folder."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    if path.name.startswith(f"{addresses.CNI_NETWORK}-"):
        return True
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(result, dict) and "/firsttoken-cluster/" in json.dumps(result)


def _ip(*words: str) -> None:
    execute.run(["ip", *words], timeout_s=TIMEOUT_S)
