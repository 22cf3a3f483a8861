"""Every name that more than one process must spell alike: labels, annotations, ports, paths, suffixes."""

from typing import Literal

GROUP = "firsttoken.dev"
VERSION = "v1alpha1"
API_VERSION: Literal["firsttoken.dev/v1alpha1"] = "firsttoken.dev/v1alpha1"
SERVICE_KIND: Literal["InferenceService"] = "InferenceService"
SERVICE_PLURAL = "inferenceservices"
EVALUATION_KIND: Literal["RegressionEval"] = "RegressionEval"
EVALUATION_PLURAL = "regressionevals"

# Labels on everything the operator makes. The watch selector is LABEL_MANAGED=true.
LABEL_MANAGED = f"{GROUP}/managed"
LABEL_SERVICE = f"{GROUP}/service"
LABEL_REVISION = f"{GROUP}/revision"
LABEL_ROLE = f"{GROUP}/role"
ROLE_SERVING = "serving"
ROLE_RESOLVER = "resolver"
MANAGED_BY = "firsttoken"

# Annotations that people set on an InferenceService.
ANNOTATION_PAUSED = f"{GROUP}/paused"
ANNOTATION_REFRESH = f"{GROUP}/refresh"
ANNOTATION_RETRY_GATE = f"{GROUP}/retry-gate"

# Annotations that the operator sets on its children.
ANNOTATION_FLAGS = f"{GROUP}/flags"  # on pods: "<generation>.<try>", see flags document
ANNOTATION_INTENT = f"{GROUP}/intent"  # on children: hash of what was last applied

FIELD_MANAGER = "firsttoken-operator"

# A model pod. The sidecar is a native sidecar (init container) and the only way in.
ENGINE_CONTAINER = "engine"
SIDECAR_CONTAINER = "sidecar"
HTTP_PORT_NAME = "http"
HTTP_PORT = 8080  # sidecar: client traffic
OPS_PORT_NAME = "ops"
OPS_PORT = 9090  # sidecar: /state, /livez, /readyz, /metrics, /engine/{startupz,livez}
ENGINE_HTTP_PORT = 8000  # engine API, loopback only
ENGINE_OPS_PORT = 9000  # engine /livez, /readyz, /metrics, /state, /flags, loopback only

FLAGS_FOLDER = "/etc/firsttoken/flags"  # ConfigMap, mounted as a folder
FLAGS_KEY = "flags.json"
FLAGS_SUFFIX = "-flags"  # of the ConfigMap's name
POD_INFO_FOLDER = "/etc/firsttoken/pod"  # downward API
POD_ANNOTATIONS_FILE = "annotations"
POD_LABELS_FILE = "labels"
AUTH_FOLDER = "/etc/firsttoken/auth"  # the Secret of spec.routing.auth
KEYS_FILE = "keys.yaml"  # its key
RUN_FOLDER = "/run/firsttoken"  # emptyDir shared by engine and sidecar
DRAIN_SOCKET = f"{RUN_FOLDER}/drain.sock"
RESERVED_VOLUME_PREFIX = "firsttoken-"  # of the pod volumes that the operator adds
CACHE_PINS_FOLDER = "/etc/firsttoken/cache-pins"  # the ConfigMap of spec.cachePins
CACHE_PINS_KEY = "pins.json"
HOST_FOLDER = "/var/lib/firsttoken/kv"  # the claim that keeps the host tier of the KV cache
MODELS_FOLDER = "/models"  # the claim of pvc://<claim>/<path>, read-only

# Request headers of clients: what kind of request it is. Sidecars pass them on.
HEADER_CLASS = "X-Firsttoken-Class"
HEADER_ROUTE = "X-Firsttoken-Route"
HEADER_TIMING = "X-Firsttoken-Timing"  # `true`: the answer says where its time to the first token went
TIMING_STAMPS = "stamps"  # the same for the sidecar that asks: it takes them out of the answer

# Request headers set by sidecars; stripped when a client sends them.
HEADER_TENANT = "X-Firsttoken-Tenant"
HEADER_HOP = "X-Firsttoken-Hop"
HEADER_REQUEST_ID = "X-Request-Id"

# Response header towards sidecars: the stamps of an answer that is not streamed.
HEADER_STAMPS = "X-Firsttoken-Stamps"

# Response header: when the first token was expected, where HEADER_TIMING is `true`.
HEADER_ESTIMATE = "X-Firsttoken-Estimate"


def revision_name(service: str, revision: str) -> str:
    """Name of the Deployment and the ControllerRevision of one cold revision."""
    return f"{service}-{revision}"


def revision_of(service: str, name: str) -> str:
    """The revision in such a name."""
    return name.removeprefix(f"{service}-")


def flags_config_map(service: str, revision: str) -> str:
    return f"{revision_name(service, revision)}{FLAGS_SUFFIX}"


def peers_service(service: str) -> str:
    """Name of the headless Service that lists a service's replicas."""
    return f"{service}-peers"


def resolver_job(service: str, source_hash: str) -> str:
    return f"{service}-resolve-{source_hash}"
