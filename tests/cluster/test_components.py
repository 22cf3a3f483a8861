from pathlib import Path

from cluster import components, layout

WHERE = layout.Layout(checkout=Path("/code"), cache=Path("/cache"))
BINARY = Path("/cache/go/kubernetes")


def test_one_binary_is_told_apart_by_its_first_word() -> None:
    makers = (
        components.etcd,
        components.api_server,
        components.controller_manager,
        components.scheduler,
        components.kubelet,
        components.proxy,
    )
    daemons = [make(WHERE, BINARY) for make in makers]
    assert all(daemon.executable == BINARY and daemon.argv[0] == daemon.name for daemon in daemons)
    assert len({daemon.name for daemon in daemons}) == len(daemons)


def test_api_server_checks_roles_and_records() -> None:
    argv = components.api_server(WHERE, BINARY).argv
    assert "--authorization-mode=Node,RBAC" in argv
    assert "--service-node-port-range=8080-8180" in argv
    assert "--audit-log-path=/code/.cluster/logs/audit.log" in argv
    assert "--audit-log-mode=blocking" in argv
    assert "--kubelet-preferred-address-types=InternalIP" in argv


def test_node_ports_are_not_offered_to_the_outside() -> None:
    argv = components.proxy(WHERE, BINARY).argv
    assert "--nodeport-addresses=127.0.0.0/8,10.244.0.1/32" in argv
    assert "--iptables-min-sync-period=100ms" in argv
