"""`helm uninstall` leaves definitions and model pods serving; a new install takes them over as they are."""

import json
from pathlib import Path

from e2e.support import clients, services
from e2e.support.kube import OPERATOR_DEPLOYMENT, OPERATOR_NAMESPACE, Kubectl, Object, helm, wait_for


def _answers() -> bool:
    answer = clients.client().completions.create(model=clients.MODEL, prompt="One, two,", max_tokens=2)
    return bool(answer.choices[0].text)


def _identity(kubectl: Kubectl) -> list[tuple[str, str]]:
    """Name and UID of the pods and of everything else that the service is made of."""
    kinds = (
        "pods",
        "deployments",
        "services",
        "configmaps",
        "controllerrevisions.apps",
        "poddisruptionbudgets",
    )
    found = [each for kind in kinds for each in kubectl.list(kind, "firsttoken.dev/service=chat")]
    return sorted((each["metadata"]["name"], each["metadata"]["uid"]) for each in found)


def test_models_serve_without_the_operator_and_are_adopted(
    chat: Object, kubectl: Kubectl, tmp_path: Path
) -> None:
    release = ["firsttoken", "-n", OPERATOR_NAMESPACE]
    values = tmp_path / "values.json"
    values.write_text(helm("get", "values", *release, "-o", "json"))
    before = _identity(kubectl)
    operator = Kubectl(namespace=OPERATOR_NAMESPACE)
    try:
        helm("uninstall", *release, "--wait")
        assert not operator.exists("deployment", OPERATOR_DEPLOYMENT)
        assert kubectl.exists("infsvc", "chat")
        assert _answers()
    finally:
        helm("install", *release, "charts/firsttoken", "--wait", "-f", str(values))
    leader = wait_for(
        "a leader",
        lambda: operator.get("lease", "firsttoken-operator")["spec"].get("holderIdentity") or None,
        timeout_s=60,
    )
    assert leader.startswith(OPERATOR_DEPLOYMENT)
    # The new operator acts: it answers a change of the spec.
    kubectl.patch("infsvc", "chat", {"spec": {"slo": {"ttftP95": "3s"}}})
    generation = kubectl.get("infsvc", "chat")["metadata"]["generation"]
    wait_for(
        "the new operator to look at the service",
        lambda: kubectl.get("infsvc", "chat")["status"]["observedGeneration"] == generation,
        timeout_s=60,
    )
    kubectl.patch("infsvc", "chat", {"spec": {"slo": {"ttftP95": chat["spec"]["slo"]["ttftP95"]}}})
    services.wait_ready(kubectl, "chat", timeout_s=60)
    assert _identity(kubectl) == before
    assert json.loads(helm("list", "-n", OPERATOR_NAMESPACE, "-o", "json"))[0]["status"] == "deployed"
