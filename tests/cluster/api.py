"""A client for the few requests the lifecycle makes to the API server; people and tests use kubectl."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from cluster import addresses
from cluster.errors import ClusterError

TIMEOUT_S = 10
FIELD_MANAGER = "firsttoken-cluster"


class Api:
    """Talks to the API server on loopback as the cluster's administrator."""

    def __init__(self, pki: Path) -> None:
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))

    def is_ready(self) -> bool:
        """Whether /readyz answers 200; False also while nothing listens yet."""
        return self._try("GET", "/readyz")[0] == 200

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at `path`, or None when there is none or the server does not answer."""
        status, body = self._try("GET", path)
        return json.loads(body) if status == 200 else None

    def apply(self, path: str, document: dict[str, Any]) -> None:
        """Server-side apply of one object."""
        query = f"{path}?fieldManager={FIELD_MANAGER}&force=true"
        status, body = self._try("PATCH", query, json.dumps(document), "application/apply-patch+yaml")
        if status not in (200, 201):
            raise ClusterError("api server", f"applying {path} answered {status}: {body[:500]}")

    def _try(
        self, method: str, path: str, body: str | None = None, kind: str = "application/json"
    ) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", addresses.API_PORT, context=self._tls, timeout=TIMEOUT_S
        )
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()
