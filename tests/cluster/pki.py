"""Keys and certificates of one run: a new authority every time, thrown away with the state.

Made with the openssl command, for Python's standard library cannot sign. Elliptic-curve keys, since RSA ones
would take seconds of a start.
"""

from dataclasses import dataclass
from pathlib import Path

from cluster import addresses, execute

DAYS = "365"
TIMEOUT_S = 30
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


@dataclass(frozen=True)
class Certificate:
    """A client or server identity: the common name is Kubernetes' user, the organization its group."""

    file: str
    common_name: str
    organization: str = ""
    names: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return (f"/O={self.organization}" if self.organization else "") + f"/CN={self.common_name}"


API_SERVER = Certificate(
    "apiserver",
    "kube-apiserver",
    names=(
        "DNS:localhost",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        f"DNS:kubernetes.default.svc.{addresses.DNS_DOMAIN}",
        "IP:127.0.0.1",
        f"IP:{addresses.API_SERVICE_IP}",
        f"IP:{addresses.NODE_IP}",
    ),
)
KUBELET_SERVER = Certificate("kubelet", addresses.NODE_NAME, names=(f"IP:{addresses.NODE_IP}",))
ADMIN = Certificate("admin", "admin", "system:masters")
API_SERVER_TO_KUBELET = Certificate(
    "apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"
)
NODE = Certificate("node", f"system:node:{addresses.NODE_NAME}", "system:nodes")
CONTROLLER_MANAGER = Certificate("controller-manager", "system:kube-controller-manager")
SCHEDULER = Certificate("scheduler", "system:kube-scheduler")
PROXY = Certificate("proxy", "system:kube-proxy")
DNS = Certificate("coredns", "system:coredns")
ALL = (
    API_SERVER,
    KUBELET_SERVER,
    ADMIN,
    API_SERVER_TO_KUBELET,
    NODE,
    CONTROLLER_MANAGER,
    SCHEDULER,
    PROXY,
    DNS,
)


def make(folder: Path) -> None:
    """Writes ca.{key,crt}, sa.{key,pub} and one key and certificate per identity into `folder`."""
    folder.mkdir(parents=True, mode=0o700)
    ca_key, ca_certificate = str(folder / "ca.key"), str(folder / "ca.crt")
    _openssl(
        "req",
        "-x509",
        *CURVE,
        "-keyout",
        ca_key,
        "-out",
        ca_certificate,
        "-days",
        DAYS,
        "-subj",
        "/CN=firsttoken-ca",
    )
    _openssl(
        "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(folder / "sa.key")
    )
    _openssl("pkey", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub"))
    for certificate in ALL:
        _sign(folder, certificate, ca_key, ca_certificate)


def _sign(folder: Path, certificate: Certificate, ca_key: str, ca_certificate: str) -> None:
    extensions = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        f"extendedKeyUsage={'serverAuth' if certificate.names else 'clientAuth'}",
    ]
    if certificate.names:
        extensions.append(f"subjectAltName={','.join(certificate.names)}")
    added = [word for extension in extensions for word in ("-addext", extension)]
    key, output = folder / f"{certificate.file}.key", folder / f"{certificate.file}.crt"
    authority = ("-CA", ca_certificate, "-CAkey", ca_key)
    _openssl(
        *("req", "-x509", *CURVE, "-keyout", str(key), "-out", str(output), "-days", DAYS),
        *("-subj", certificate.subject, *authority, *added),
    )


def _openssl(*words: str) -> None:
    execute.run(["openssl", *words], timeout_s=TIMEOUT_S)
