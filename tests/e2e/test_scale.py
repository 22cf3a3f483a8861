"""Scaling in Fixed mode, and the promise that a scale-down costs no client anything."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from e2e.support import disturbance, services
from e2e.support.kube import Kubectl, Object, wait_for


@pytest.fixture
def patient(kubectl: Kubectl) -> Iterator[None]:
    """No request is turned away for its objective, which two replicas on a busy machine may not hold."""
    before = kubectl.get("infsvc", "chat")
    kubectl.patch("infsvc", "chat", {"spec": {"slo": {"ttftP95": "10m"}}})
    services.wait_applied(kubectl, "chat", newer_than=before)
    yield
    kubectl.patch("infsvc", "chat", {"spec": {"slo": {"ttftP95": before["spec"]["slo"]["ttftP95"]}}})


async def test_scale_down_with_streams_and_load_has_no_error(
    chat: Object, patient: None, kubectl: Kubectl
) -> None:
    """Two replicas, a stream of at least 60 s on each, 5 short requests a second where the machine carries
    them; then 2 -> 1."""
    kubectl.run("scale", "infsvc", "chat", "--replicas=2")
    await asyncio.to_thread(services.wait_ready, kubectl, "chat", 2)
    await disturbance.unnoticed(
        services.serving_pods(kubectl, "chat"),
        disturb=lambda: kubectl.run("scale", "infsvc", "chat", "--replicas=1"),
        settled=lambda: services.wait_ready(kubectl, "chat", 1),
    )


def test_kubectl_scale_is_what_the_status_reports(chat: Object, kubectl: Kubectl) -> None:
    scale = kubectl.get("infsvc", "chat")
    assert scale["spec"]["scaling"]["mode"] == "Fixed"
    # The scale subresource an HPA reads: an integer and a selector that finds exactly the replicas.
    raw = kubectl.run(
        "get", "--raw", "/apis/firsttoken.dev/v1alpha1/namespaces/default/inferenceservices/chat/scale"
    )

    status = json.loads(raw)["status"]
    assert status["replicas"] == 1
    pods = kubectl.list("pods", status["selector"])
    assert len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == 1


def test_slo_mode_keeps_min_and_says_that_nothing_scales_yet(sandbox: Kubectl) -> None:
    scaling = {"mode": "SLO", "min": 1, "max": 3}
    sandbox.apply(services.service("slo-mode", scaling=scaling))

    def limited() -> Object | None:
        conditions = sandbox.get("infsvc", "slo-mode").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "ScalingLimited" and c["status"] == "True"), None)

    assert wait_for("ScalingLimited", limited, timeout_s=20)["reason"] == "ScalerNotBuilt"
    sandbox.run("delete", "infsvc", "slo-mode")
