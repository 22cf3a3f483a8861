"""The command lines of all daemons, as data: what the cluster is made of reads in one place."""

from collections.abc import Mapping
from pathlib import Path

from cluster import addresses, layout
from cluster.daemons import Daemon

CONTAINERD = Path("/usr/bin/containerd")
ETCD_URL = f"http://127.0.0.1:{addresses.ETCD_PORT}"


def containerd(where: layout.Layout) -> Daemon:
    return Daemon("containerd", ("containerd", "--config", str(where.config / "containerd.toml")), CONTAINERD)


def etcd(where: layout.Layout, kubernetes: Path) -> Daemon:
    """Without fsync: the state is thrown away at the next start anyway."""
    peer = f"http://127.0.0.1:{addresses.ETCD_PEER_PORT}"
    return _kubernetes(
        "etcd",
        kubernetes,
        {
            "data-dir": where.state / "etcd",
            "listen-client-urls": ETCD_URL,
            "advertise-client-urls": ETCD_URL,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        },
    )


def api_server(where: layout.Layout, kubernetes: Path) -> Daemon:
    """Binds all addresses, since pods reach it at the bridge's and people at loopback.

    The kubelet is addressed by IP, because the node's name resolves nowhere.
    """
    pki = where.pki
    return _kubernetes(
        "kube-apiserver",
        kubernetes,
        {
            "etcd-servers": ETCD_URL,
            "bind-address": "0.0.0.0",
            "secure-port": addresses.API_PORT,
            "advertise-address": addresses.NODE_IP,
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "client-ca-file": pki / "ca.crt",
            "service-account-key-file": pki / "sa.pub",
            "service-account-signing-key-file": pki / "sa.key",
            "service-account-issuer": f"https://kubernetes.default.svc.{addresses.DNS_DOMAIN}",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-cluster-ip-range": addresses.SERVICE_RANGE,
            "service-node-port-range": addresses.NODE_PORTS,
            "kubelet-certificate-authority": pki / "ca.crt",
            "kubelet-client-certificate": pki / "apiserver-kubelet-client.crt",
            "kubelet-client-key": pki / "apiserver-kubelet-client.key",
            "kubelet-preferred-address-types": "InternalIP",
            "allow-privileged": "true",
            "audit-policy-file": where.config / "audit-policy.json",
            "audit-log-path": where.audit_log,
            "audit-log-format": "json",
            "audit-log-mode": "blocking",
        },
    )


def controller_manager(where: layout.Layout, kubernetes: Path) -> Daemon:
    return _kubernetes(
        "kube-controller-manager",
        kubernetes,
        {
            "kubeconfig": where.config / "controller-manager.kubeconfig",
            "bind-address": "127.0.0.1",
            "service-account-private-key-file": where.pki / "sa.key",
            "root-ca-file": where.pki / "ca.crt",
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "allocate-node-cidrs": "false",
            "flex-volume-plugin-dir": where.state / "volume-plugins",
        },
    )


def scheduler(where: layout.Layout, kubernetes: Path) -> Daemon:
    options = {
        "kubeconfig": where.config / "scheduler.kubeconfig",
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
    }
    return _kubernetes("kube-scheduler", kubernetes, options)


def kubelet(where: layout.Layout, kubernetes: Path) -> Daemon:
    options = {
        "kubeconfig": where.config / "node.kubeconfig",
        "config": where.config / "kubelet.json",
        "root-dir": where.kubelet,
        "hostname-override": addresses.NODE_NAME,
        "node-ip": addresses.NODE_IP,
        "v": 2,
    }
    return _kubernetes("kubelet", kubernetes, options)


def proxy(where: layout.Layout, kubernetes: Path) -> Daemon:
    """The short sync period makes a change of endpoints, such as a pod that drains, count within 0.1 s.

    Connection tracking limits stay the host's.
    """
    return _kubernetes(
        "kube-proxy",
        kubernetes,
        {
            "kubeconfig": where.config / "proxy.kubeconfig",
            "hostname-override": addresses.NODE_NAME,
            "proxy-mode": "iptables",
            "cluster-cidr": addresses.POD_RANGE,
            "nodeport-addresses": addresses.NODE_PORT_ADDRESSES,
            "iptables-localhost-nodeports": "true",
            "iptables-min-sync-period": "100ms",
            "conntrack-max-per-core": 0,
            "conntrack-min": 0,
            "oom-score-adj": 0,
        },
    )


def coredns(where: layout.Layout, binary: Path) -> Daemon:
    return Daemon("coredns", ("coredns", "-conf", str(where.config / "Corefile")), binary)


def _kubernetes(name: str, binary: Path, options: Mapping[str, object]) -> Daemon:
    return Daemon(name, (name, *(f"--{option}={value}" for option, value in options.items())), binary)
