"""Kubeconfig files, as JSON (which is YAML) with the keys inside, so that one file is all a client needs."""

import base64
import json
import os
from pathlib import Path

from cluster import addresses, pki

CONTEXT = "firsttoken"


def render(certificates: Path, certificate: pki.Certificate) -> str:
    """A kubeconfig for the API server on loopback as the identity of `certificate`."""
    server = f"https://127.0.0.1:{addresses.API_PORT}"
    cluster = {"server": server, "certificate-authority-data": _encoded(certificates / "ca.crt")}
    user = {
        "client-certificate-data": _encoded(certificates / f"{certificate.file}.crt"),
        "client-key-data": _encoded(certificates / f"{certificate.file}.key"),
    }
    context = {"cluster": CONTEXT, "user": certificate.common_name}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": certificate.common_name, "user": user}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    return json.dumps(document, indent=1)


def write(path: Path, certificates: Path, certificate: pki.Certificate) -> None:
    """Writes a kubeconfig only its owner can read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(render(certificates, certificate))


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
