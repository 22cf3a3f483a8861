"""Reads the API server's audit log: what the operator's user wrote, and when."""

import json
from datetime import UTC, datetime

from e2e.support.kube import OPERATOR_NAMESPACE, STATE_FOLDER

AUDIT_LOG = STATE_FOLDER / "logs" / "audit.log"
OPERATOR_USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:firsttoken-operator"
WRITING_VERBS = {"create", "update", "patch", "delete", "deletecollection"}


def operator_writes(since: datetime, until: datetime | None = None) -> list[str]:
    """Every write by the operator's user in that span, as "verb resource/name"; Lease renewals apart."""
    until = until or datetime.now(UTC)
    writes = []
    for line in AUDIT_LOG.read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] != OPERATOR_USER or event["verb"] not in WRITING_VERBS:
            continue
        target = event.get("objectRef", {})
        at = datetime.fromisoformat(event["requestReceivedTimestamp"])
        if since <= at <= until and target.get("resource") != "leases":
            resource = "/".join(filter(None, [target.get("resource"), target.get("subresource")]))
            writes.append(f"{event['verb']} {resource} {target.get('namespace')}/{target.get('name')}")
    return writes
