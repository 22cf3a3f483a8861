"""The operator leaves things alone: no writes at rest, no pod touched by its restart or upgrade."""

import json
import time
from datetime import UTC, datetime

from e2e.support import audit, services
from e2e.support.kube import (
    OPERATOR_DEPLOYMENT,
    OPERATOR_NAMESPACE,
    Kubectl,
    Object,
    condition,
    helm,
    wait_for,
)

QUIET_S = 120
SETTLE_S = 75
"""What the last load left in `status.slo` is written at most 60 s after it ended."""


def _identity(kubectl: Kubectl) -> list[tuple[str, int]]:
    """Uid and restarts of the service's pods."""
    return [
        (pod["metadata"]["uid"], sum(c["restartCount"] for c in pod["status"]["containerStatuses"]))
        for pod in services.serving_pods(kubectl, "chat")
    ]


def _wait_rolled_out() -> None:
    system = Kubectl(namespace=OPERATOR_NAMESPACE)
    system.run("rollout", "status", "deploy", OPERATOR_DEPLOYMENT, "--timeout=120s", timeout_s=130)


def test_no_write_at_rest(chat: Object) -> None:
    time.sleep(SETTLE_S)
    begin = datetime.now(UTC)
    time.sleep(QUIET_S)
    assert audit.operator_writes(since=begin) == []


def test_the_audit_log_would_show_a_write(chat: Object, kubectl: Kubectl) -> None:
    """The check above can fail: a hand edit is undone, and that is in the log."""
    begin = datetime.now(UTC)
    kubectl.patch("service", "chat", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}})

    def undone() -> bool:
        labels = kubectl.get("service", "chat")["metadata"]["labels"]
        return bool(labels["app.kubernetes.io/managed-by"] == "firsttoken")

    wait_for("the hand edit to be undone", undone, timeout_s=20)
    assert any("services" in write for write in audit.operator_writes(since=begin))


def test_operator_restart_changes_no_pod(chat: Object, kubectl: Kubectl) -> None:
    before = _identity(kubectl)
    begin = datetime.now(UTC)
    Kubectl(namespace=OPERATOR_NAMESPACE).run("rollout", "restart", "deploy", OPERATOR_DEPLOYMENT)
    _wait_rolled_out()
    time.sleep(10)
    assert _identity(kubectl) == before
    assert not [write for write in audit.operator_writes(since=begin) if " pods" in write]


def test_operator_upgrade_with_a_changed_template_changes_no_pod(chat: Object, kubectl: Kubectl) -> None:
    """An operator that renders another template says UpdateAvailable, and rolls only when asked."""
    before = _identity(kubectl)
    upgrade = [
        "upgrade",
        "firsttoken",
        "charts/firsttoken",
        "-n",
        OPERATOR_NAMESPACE,
        "--reuse-values",
        "--wait",
    ]
    values = json.loads(helm("get", "values", "firsttoken", "-n", OPERATOR_NAMESPACE, "--all", "-o", "json"))
    policy = values["image"]["pullPolicy"]
    other = "Never" if policy == "IfNotPresent" else "IfNotPresent"
    helm(*upgrade, "--set", f"image.pullPolicy={other}")
    _wait_rolled_out()

    def offered() -> Object | None:
        found = condition(kubectl.get("infsvc", "chat"), "UpdateAvailable")
        return found if found.get("status") == "True" else None

    wait_for("UpdateAvailable", offered, timeout_s=60)
    time.sleep(5)
    assert _identity(kubectl) == before
    helm(*upgrade, "--set", f"image.pullPolicy={policy}")
    _wait_rolled_out()
    wait_for("the offer withdrawn", lambda: not offered(), timeout_s=60)
    assert _identity(kubectl) == before
