import json
import tomllib
from pathlib import Path

from cluster import addresses, configs, layout

WHERE = layout.Layout(checkout=Path("/code"), cache=Path("/cache"), run=Path("/run/x"))


def test_containerd_keeps_images_in_the_cache_and_the_rest_in_the_run_folder() -> None:
    document = tomllib.loads(configs.containerd(WHERE))
    assert document["root"] == "/cache/containerd"
    assert document["state"] == "/run/x/containerd"
    cri = document["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == addresses.PAUSE_IMAGE
    runc = cri["containerd"]["runtimes"]["runc"]["options"]
    assert runc == {"Root": "/run/x/runc", "SystemdCgroup": False}


def test_pods_get_addresses_of_the_bridges_network() -> None:
    bridge = json.loads(configs.cni(WHERE))["plugins"][0]
    assert bridge["bridge"] == addresses.BRIDGE
    assert bridge["ipam"]["ranges"] == [[{"subnet": addresses.POD_RANGE, "gateway": addresses.NODE_IP}]]
    assert bridge["ipam"]["dataDir"] == "/run/x/leases"


def test_kubelet_stays_inside_the_state_folder_and_lowers_no_oom_score() -> None:
    document = json.loads(configs.kubelet(WHERE))
    assert document["podLogsDir"].startswith("/code/.cluster/state/")
    assert document["oomScoreAdj"] == 0
    assert set(document["evictionHard"].values()) == {"0%"}


def test_audit_records_the_operators_writes_only() -> None:
    rules = json.loads(configs.audit_policy())["rules"]
    assert rules[0]["userGroups"] == ["system:serviceaccounts:firsttoken-system"]
    assert {"create", "update", "patch", "delete", "deletecollection"} == set(rules[0]["verbs"])
    assert rules[1:] == [{"level": "None"}]


def test_corefile_answers_other_names_in_a_block_of_their_own() -> None:
    blocks = configs.corefile(WHERE).split("\n}\n")
    assert blocks[0].startswith(f"{addresses.DNS_DOMAIN}:{addresses.DNS_PORT} in-addr.arpa")
    assert "template" not in blocks[0]
    assert "NXDOMAIN" in blocks[1]
