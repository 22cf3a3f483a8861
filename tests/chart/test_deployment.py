"""The operator's Deployment: restricted Pod Security, probes, settings that reach the process."""

import inspect
from typing import Any

import pytest

from chart import helm
from firsttoken_operator import settings


def _pod(*settings: str) -> dict[str, Any]:
    spec: dict[str, Any] = helm.one(helm.render(*settings), "Deployment")["spec"]["template"]["spec"]
    return spec


def _container(*settings: str) -> dict[str, Any]:
    (container,) = _pod(*settings)["containers"]
    assert isinstance(container, dict)
    return container


def _environment(*settings: str) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in _container(*settings)["env"] if "value" in entry}


def test_restricted_pod_security() -> None:
    pod = _pod()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) == {"name", "emptyDir"} for volume in pod["volumes"])
    container = _container()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("hostPort" not in port for port in container["ports"])


def test_two_replicas_spread_and_guarded() -> None:
    objects = helm.render()
    deployment = helm.one(objects, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"],
        helm.one(objects, "PodDisruptionBudget")["spec"]["selector"],
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"],
    ):
        assert selector["matchLabels"].items() <= labels.items()
        assert len(selector["matchLabels"]) == 2
    assert helm.one(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_probes_ask_the_health_port() -> None:
    container = _container()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "health"
    assert str(ports["health"]) == _environment()["FIRSTTOKEN_HEALTH_PORT"]
    assert str(ports["metrics"]) == _environment()["FIRSTTOKEN_METRICS_PORT"]


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ('operator.logLevel="debug"', "FIRSTTOKEN_LOG_LEVEL", "debug"),
        ('operator.logFormat="text"', "FIRSTTOKEN_LOG_FORMAT", "text"),
        ('watch.scope="cluster"', "FIRSTTOKEN_WATCH_SCOPE", "cluster"),
        ('watch.scope="cluster"', "FIRSTTOKEN_WATCH_NAMESPACES", ""),
        ('watch.namespaces=["b","a"]', "FIRSTTOKEN_WATCH_NAMESPACES", "a,b"),
        ("watch.namespaces=[]", "FIRSTTOKEN_WATCH_NAMESPACES", "firsttoken-system"),
        ('image.pullPolicy="Never"', "FIRSTTOKEN_IMAGE_PULL_POLICY", "Never"),
        ('image.pullSecrets=["one","two"]', "FIRSTTOKEN_IMAGE_PULL_SECRETS", "one,two"),
        (
            'forceFlagsOff=["paged-kv","chunked-prefill"]',
            "FIRSTTOKEN_FORCE_FLAGS_OFF",
            "paged-kv,chunked-prefill",
        ),
        ("metrics.port=9500", "FIRSTTOKEN_METRICS_PORT", "9500"),
        ('operator.extraEnv=[{"name":"EXTRA","value":"x"}]', "EXTRA", "x"),
    ],
)
def test_values_reach_the_process(setting: str, name: str, value: str) -> None:
    assert _environment(setting)[name] == value


def test_environment_names_are_unique() -> None:
    names = [entry["name"] for entry in _container()["env"]]
    assert len(names) == len(set(names))


def test_scheduling_values() -> None:
    pod = _pod(
        'operator.nodeSelector={"disk":"ssd"}',
        'operator.tolerations=[{"key":"infra","operator":"Exists","effect":"NoSchedule"}]',
        'operator.affinity={"nodeAffinity":{}}',
        'operator.resources={"requests":{"cpu":"1"}}',
        'image.pullSecrets=["one"]',
        "operator.replicas=3",
    )
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["tolerations"] == [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["imagePullSecrets"] == [{"name": "one"}]
    # `--set-json` merges maps, so the chart's own memory request stays.
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "1"


def test_service_account() -> None:
    objects = helm.render('serviceAccount.annotations={"a":"b"}')
    account = helm.one(objects, "ServiceAccount")["metadata"]
    assert (
        account["name"] == helm.one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    )
    assert account["annotations"] == {"a": "b"}
    objects = helm.render("serviceAccount.create=false", 'serviceAccount.name="mine"')
    assert helm.of_kind(objects, "ServiceAccount") == []
    assert helm.one(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_the_operator_understands_what_the_chart_sets() -> None:
    rendered = _environment(
        'watch.namespaces=["chat"]',
        'operator.logLevel="debug"',
        'forceFlagsOff=["paged-kv"]',
        'image.pullSecrets=["one","two"]',
    )
    understood = settings.from_environment(
        rendered | {"POD_NAMESPACE": "firsttoken-system", "POD_NAME": "one"}
    )
    assert understood.watch_namespaces == ("chat",)
    assert understood.force_flags_off == {"paged-kv"}
    assert understood.images.sidecar == rendered["FIRSTTOKEN_SIDECAR_IMAGE"]
    assert understood.images.runtime == rendered["FIRSTTOKEN_RUNTIME_IMAGE"]
    assert understood.images.pull_secrets == ("one", "two")
    assert understood.health_port == 8082
    assert understood.metrics_port == 8081


def test_nothing_is_set_that_the_operator_does_not_read() -> None:
    source = inspect.getsource(settings)
    assert [
        name for name in _environment() if name.startswith("FIRSTTOKEN_") and f'"{name}"' not in source
    ] == []
