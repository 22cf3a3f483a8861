"""Metrics: a Service in front of the operator, PodMonitors only when asked for."""

from chart import helm
from firsttoken_api import names


def test_service() -> None:
    objects = helm.render("metrics.port=9500", 'metrics.service.annotations={"a":"b"}')
    service = helm.one(objects, "Service")
    pod_labels = helm.one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pod_labels.items()
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 9500, "targetPort": "metrics"}]
    assert service["metadata"]["annotations"] == {"a": "b"}


def test_service_can_be_left_out() -> None:
    assert helm.of_kind(helm.render("metrics.service.enabled=false"), "Service") == []


def test_no_pod_monitor_by_default() -> None:
    assert helm.of_kind(helm.render(), "PodMonitor") == []


def test_pod_monitors() -> None:
    objects = helm.render(
        "metrics.podMonitor.enabled=true",
        'metrics.podMonitor.labels={"release":"prometheus"}',
        'watch.namespaces=["chat"]',
    )
    operator, models = helm.of_kind(objects, "PodMonitor")
    pod_labels = helm.one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert operator["spec"]["selector"]["matchLabels"].items() <= pod_labels.items()
    assert models["spec"]["selector"]["matchLabels"] == {
        names.LABEL_MANAGED: "true",
        names.LABEL_ROLE: names.ROLE_SERVING,
    }
    assert models["spec"]["namespaceSelector"] == {"matchNames": ["chat"]}
    assert models["spec"]["podMetricsEndpoints"][0]["port"] == names.OPS_PORT_NAME
    assert {monitor["metadata"]["labels"]["release"] for monitor in (operator, models)} == {"prometheus"}


def test_pod_monitors_of_the_whole_cluster() -> None:
    objects = helm.render("metrics.podMonitor.enabled=true", 'watch.scope="cluster"')
    assert helm.of_kind(objects, "PodMonitor")[1]["spec"]["namespaceSelector"] == {"any": True}
