import json
from pathlib import Path

from cluster import network


def test_results_of_our_network_are_told_from_others(tmp_path: Path) -> None:
    netns = "/run/firsttoken-cluster/containerd/io.containerd.grpc.v1.cri/netns/cni-1"
    contents = {
        "firsttoken-abc-eth0": "not even JSON",
        "cni-loopback-abc-lo": json.dumps({"kind": "cniCacheV1", "netns": netns}),
        "cni-loopback-def-lo": json.dumps({"kind": "cniCacheV1", "netns": "/var/run/netns/cni-2"}),
        "podman-abc-eth0": "{}",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    found = sorted(path.name for path in network.cni_results(tmp_path))
    assert found == ["cni-loopback-abc-lo", "firsttoken-abc-eth0"]


def test_no_folder_means_no_results(tmp_path: Path) -> None:
    assert network.cni_results(tmp_path / "none") == []
