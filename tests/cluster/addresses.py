"""The cluster's fixed numbers and names: one place for everything two components must agree on.

The node's address is the bridge's, because the kubelet refuses a loopback one and pods must reach the API
server and the DNS server there. Only loopback and that address accept NodePorts, so nothing of the cluster
is offered to the outside.
"""

KUBERNETES_VERSION = "1.34.4"

NODE_NAME = "node1"
NODE_IP = "10.244.0.1"
POD_RANGE = "10.244.0.0/24"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
DNS_DOMAIN = "cluster.local"
NODE_PORTS = "8080-8180"
NODE_PORT_ADDRESSES = f"127.0.0.0/8,{NODE_IP}/32"

BRIDGE = "ftbr0"
CNI_NETWORK = "firsttoken"
CGROUP = "firsttoken-cluster"
PAUSE_IMAGE = "localhost/firsttoken/pause:1"

API_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
KUBELET_PORT = 10250
DNS_PORT = 5353
DNS_HEALTH_PORT = 5380
DNS_READY_PORT = 5381

# What must be free before the start, by the component that listens on it.
PORTS = {
    "etcd": (ETCD_PORT, ETCD_PEER_PORT),
    "api server": (API_PORT,),
    "kubelet": (KUBELET_PORT, 10248),
    "controller manager": (10257,),
    "scheduler": (10259,),
    "kube-proxy": (10249, 10256),
    "coredns": (DNS_PORT, DNS_HEALTH_PORT, DNS_READY_PORT),
}
