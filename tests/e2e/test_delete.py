"""Deleting a service removes every child, also while no operator runs."""

from e2e.support import services
from e2e.support.kube import OPERATOR_DEPLOYMENT, OPERATOR_NAMESPACE, Kubectl, wait_for
from firsttoken_api import names

CHILDREN = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,"
    "poddisruptionbudgets,jobs,controllerrevisions"
)


def _children(kubectl: Kubectl, name: str) -> list[str]:
    selector = f"{names.LABEL_SERVICE}={name}"
    found = kubectl.list(CHILDREN, selector)
    return [f"{each['kind']}/{each['metadata']['name']}" for each in found]


def test_delete_with_the_operator_running(sandbox: Kubectl) -> None:
    sandbox.apply(services.service("gone"))
    services.wait_ready(sandbox, "gone")
    kinds = {child.split("/")[0] for child in _children(sandbox, "gone")}
    expected = {"Deployment", "Pod", "Service", "ConfigMap", "PodDisruptionBudget", "ControllerRevision"}
    assert expected <= kinds
    sandbox.run("delete", "infsvc", "gone")
    wait_for("every child gone", lambda: not _children(sandbox, "gone"), timeout_s=90)


def test_delete_with_the_operator_down(sandbox: Kubectl) -> None:
    sandbox.apply(services.service("orphan"))
    wait_for("children", lambda: len(_children(sandbox, "orphan")) >= 5, timeout_s=60)
    system = Kubectl(namespace=OPERATOR_NAMESPACE)
    replicas = system.get("deploy", OPERATOR_DEPLOYMENT)["spec"]["replicas"]
    system.run("scale", "deploy", OPERATOR_DEPLOYMENT, "--replicas=0")
    try:
        wait_for("no operator pod", lambda: not system.list("pods"), timeout_s=60)
        sandbox.run("delete", "infsvc", "orphan", timeout_s=30)
        wait_for("every child gone", lambda: not _children(sandbox, "orphan"), timeout_s=90)
    finally:
        system.run("scale", "deploy", OPERATOR_DEPLOYMENT, f"--replicas={replicas}")
        system.run("rollout", "status", "deploy", OPERATOR_DEPLOYMENT, "--timeout=90s", timeout_s=100)
