"""The cluster's lines in iptables: a few of ours, and those of kube-proxy and the kubelet to remove.

Ours make pods reach the outside under the host's address and pass machines whose FORWARD chain drops by
default (Docker sets that). Removal rewrites the tables without the cluster's lines and keeps all others.
"""

import re

from cluster import addresses, execute

COMMENT = "firsttoken-cluster"
TIMEOUT_S = 30
_OURS = re.compile(rf"\b(KUBE|CNI)-|--comment \"?{COMMENT}\b")


def allow_pods() -> None:
    """Appends the two kinds of rules pods need besides kube-proxy's."""
    marked = ("-m", "comment", "--comment", COMMENT)
    outside = ("-s", addresses.POD_RANGE, "!", "-d", addresses.POD_RANGE, "!", "-o", addresses.BRIDGE)
    _iptables("-t", "nat", "-A", "POSTROUTING", *outside, *marked, "-j", "MASQUERADE")
    for direction in ("-i", "-o"):
        _iptables("-A", "FORWARD", direction, addresses.BRIDGE, *marked, "-j", "ACCEPT")


def _iptables(*words: str) -> None:
    execute.run(["iptables", "--wait", "10", *words], timeout_s=TIMEOUT_S)


def is_ours(line: str) -> bool:
    return not line.startswith("#") and _OURS.search(line) is not None


def find() -> list[str]:
    """Every iptables line of the cluster, both address families."""
    return [line for command in ("iptables", "ip6tables") for line in _saved(command) if is_ours(line)]


def clear() -> None:
    for command in ("iptables", "ip6tables"):
        lines = _saved(command)
        kept = [line for line in lines if not is_ours(line)]
        if len(kept) < len(lines):
            execute.run([f"{command}-restore"], input_text="\n".join(kept) + "\n", timeout_s=TIMEOUT_S)


def _saved(command: str) -> list[str]:
    return execute.run([f"{command}-save"], timeout_s=TIMEOUT_S, check=command == "iptables").splitlines()
