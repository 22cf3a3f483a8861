"""What the operator may do: the one list that the chart and the running cluster are held to."""

Granted = dict[tuple[str, str], set[str]]
"""(API group, resource) -> verbs."""

_ALL = ("get", "list", "watch", "create", "patch", "delete")

# Where the operator watches: (API group, resource) -> verbs.
WATCHED: Granted = {
    ("firsttoken.dev", "inferenceservices"): {"get", "list", "watch"},
    ("firsttoken.dev", "inferenceservices/status"): {"patch"},
    ("firsttoken.dev", "inferenceservices/finalizers"): {"update"},
    ("apps", "deployments"): set(_ALL),
    ("apps", "controllerrevisions"): set(_ALL),
    ("apps", "replicasets"): {"list", "watch"},
    ("", "services"): set(_ALL),
    ("", "configmaps"): set(_ALL),
    ("policy", "poddisruptionbudgets"): {"get", "list", "watch", "create", "patch"},
    ("batch", "jobs"): set(_ALL),
    ("", "pods"): {"list", "watch", "patch", "delete"},
    ("", "events"): {"list"},
}
# In scope cluster, besides.
CLUSTER_ONLY: Granted = {
    ("", "namespaces"): {"list", "watch"},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"},
}
# In the operator's own namespace, besides.
ELECTION: Granted = {("coordination.k8s.io", "leases"): {"create", "get", "update"}}

FORBIDDEN = {
    "secrets",
    "serviceaccounts",
    "serviceaccounts/token",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/ephemeralcontainers",
    "nodes",
    "nodes/proxy",
    "*",
}
