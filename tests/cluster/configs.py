"""The files the daemons read, rendered from layout and addresses; JSON wherever the reader takes it."""

import json

from cluster import addresses, kubeconfigs, layout, pki

OPERATOR_GROUP = "system:serviceaccounts:firsttoken-system"
WRITING_VERBS = ["create", "update", "patch", "delete", "deletecollection"]
# Slow to probe, of no use here; `opt` would make a folder /opt/containerd.
UNUSED_PLUGINS = [
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
]


def containerd(where: layout.Layout) -> str:
    """`restrict_oom_score_adj`: a machine without CAP_SYS_RESOURCE cannot lower it, and runc would fail."""
    return f"""\
version = 2
root = "{where.image_store}"
state = "{where.run}/containerd"
disabled_plugins = {json.dumps(UNUSED_PLUGINS)}

[grpc]
  address = "{where.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{addresses.PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{where.run}/runc"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{where.config}/cni"
"""


def cni(where: layout.Layout) -> str:
    """Pods on one bridge; addresses are leased under the run folder, so a killed run leaves none taken."""
    bridge = {
        "type": "bridge",
        "bridge": addresses.BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(where.run / "leases"),
            "ranges": [[{"subnet": addresses.POD_RANGE, "gateway": addresses.NODE_IP}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return _json({"cniVersion": "0.4.0", "name": addresses.CNI_NETWORK, "plugins": [bridge]})


def kubelet(where: layout.Layout) -> str:
    """No eviction and no image collection: a laptop's full disk should not end a test in a strange way."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": addresses.NODE_IP,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(where.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(where.pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(where.pki / "kubelet.key"),
            "containerRuntimeEndpoint": f"unix://{where.containerd_socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{addresses.CGROUP}",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "clusterDomain": addresses.DNS_DOMAIN,
            "clusterDNS": [addresses.DNS_SERVICE_IP],
            "resolvConf": str(where.config / "resolv.conf"),
            "podLogsDir": str(where.state / "pod-logs"),
            "volumePluginDir": str(where.state / "volume-plugins"),
            "maxPods": 200,
            "serializeImagePulls": False,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": dict.fromkeys(
                (
                    "memory.available",
                    "nodefs.available",
                    "nodefs.inodesFree",
                    "imagefs.available",
                    "imagefs.inodesFree",
                ),
                "0%",
            ),
        }
    )


def audit_policy() -> str:
    """Records what the operator writes and nothing else: tests count these lines to show a steady state."""
    written = {"level": "Request", "userGroups": [OPERATOR_GROUP], "verbs": WRITING_VERBS}
    return _json(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [written, {"level": "None"}],
        }
    )


def corefile(where: layout.Layout) -> str:
    """Two server blocks: in one, `template` would answer the cluster's names too. Others get NXDOMAIN."""
    return f"""\
{addresses.DNS_DOMAIN}:{addresses.DNS_PORT} in-addr.arpa:{addresses.DNS_PORT} {{
    bind {addresses.NODE_IP}
    errors
    health {addresses.NODE_IP}:{addresses.DNS_HEALTH_PORT}
    ready {addresses.NODE_IP}:{addresses.DNS_READY_PORT}
    kubernetes {addresses.DNS_DOMAIN} in-addr.arpa {{
        kubeconfig {where.config}/coredns.kubeconfig
        pods insecure
        ttl 1
    }}
    cache 1
}}
.:{addresses.DNS_PORT} {{
    bind {addresses.NODE_IP}
    errors
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def write(where: layout.Layout) -> None:
    """Writes every file below `state/config`."""
    (where.config / "cni").mkdir(parents=True)
    files = {
        "containerd.toml": containerd(where),
        "cni/10-firsttoken.conflist": cni(where),
        "kubelet.json": kubelet(where),
        "audit-policy.json": audit_policy(),
        "Corefile": corefile(where),
        "resolv.conf": f"nameserver {addresses.DNS_SERVICE_IP}\n",
    }
    for name, content in files.items():
        (where.config / name).write_text(content)
    clients = (pki.ADMIN, pki.NODE, pki.CONTROLLER_MANAGER, pki.SCHEDULER, pki.PROXY, pki.DNS)
    for certificate in clients:
        kubeconfigs.write(where.config / f"{certificate.file}.kubeconfig", where.pki, certificate)


def _json(document: object) -> str:
    return json.dumps(document, indent=1)
