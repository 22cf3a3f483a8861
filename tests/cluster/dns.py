"""CoreDNS as a host process behind the usual Service `kube-dns`, and a question to see that it answers.

Outside a pod it needs no image, and its start does not wait for the node. The Service has no selector; its
EndpointSlice names the bridge's address.
"""

import secrets
import socket
import struct
from typing import Any

from cluster import addresses
from cluster.api import Api

TYPE_A = 1
CLASS_IN = 1
NAMESPACE = "kube-system"


def objects() -> dict[str, dict[str, Any]]:
    """The API objects by the path they are applied to."""
    watched = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    return {
        f"{rbac}/clusterroles/system:coredns": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": watched,
        },
        f"{rbac}/clusterrolebindings/system:coredns": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
        },
        f"/api/v1/namespaces/{NAMESPACE}/services/kube-dns": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": NAMESPACE},
            "spec": {"clusterIP": addresses.DNS_SERVICE_IP, "ports": ports},
        },
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/kube-dns-host": {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-host",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [addresses.NODE_IP], "conditions": {"ready": True}}],
            "ports": [{**port, "port": addresses.DNS_PORT} for port in ports],
        },
    }


def apply(api: Api) -> None:
    for path, document in objects().items():
        api.apply(path, document)


def question(identity: int, name: str) -> bytes:
    """A query packet for the IPv4 addresses of `name`."""
    header = struct.pack(">6H", identity, 0x0100, 1, 0, 0, 0)  # recursion desired, one question
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return header + labels + b"\0" + struct.pack(">2H", TYPE_A, CLASS_IN)


def is_answering(timeout_s: float = 0.5) -> bool:
    """Whether the API server's name resolves through the Service address, that is through kube-proxy too."""
    identity = secrets.randbelow(1 << 16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout_s)
        try:
            client.sendto(
                question(identity, f"kubernetes.default.svc.{addresses.DNS_DOMAIN}"),
                (addresses.DNS_SERVICE_IP, 53),
            )
            answer = client.recv(512)
        except OSError:
            return False
    return answer[:2] == struct.pack(">H", identity) and answer.endswith(
        socket.inet_aton(addresses.API_SERVICE_IP)
    )
