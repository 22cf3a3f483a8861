"""What the children look like: the parts that others rely on."""

import json
from typing import Any

import pytest

from builders import observed as build
from firsttoken_api import hot_settings, names
from firsttoken_operator import flags, manifests

Object = dict[str, Any]


def template(**spec: Any) -> Object:
    return manifests.pod_template(build.service(**spec), build.IMAGES, "abc")


def engine(pod: Object) -> Object:
    (container,) = pod["spec"]["containers"]
    assert container["name"] == names.ENGINE_CONTAINER
    return dict(container)


def sidecar(pod: Object) -> Object:
    (container,) = pod["spec"]["initContainers"]
    return dict(container)


def test_the_sidecar_is_native_and_the_only_way_in() -> None:
    pod = template()
    assert sidecar(pod)["restartPolicy"] == "Always"
    assert [port["name"] for port in sidecar(pod)["ports"]] == [names.HTTP_PORT_NAME, names.OPS_PORT_NAME]
    assert "ports" not in engine(pod)
    assert "--host=127.0.0.1" in engine(pod)["args"]
    assert "readinessProbe" in sidecar(pod)
    assert "startupProbe" not in sidecar(pod)


def test_a_variable_is_named_once_and_the_users_value_wins() -> None:
    pod = template(runtime={"device": "cpu", "env": [{"name": "HOME", "value": "/scratch"}]})
    assert engine(pod)["env"] == [{"name": "HOME", "value": "/scratch"}]
    assert engine(template())["env"] == [{"name": "HOME", "value": "/tmp"}]


def test_restricted_pod_security_without_a_token() -> None:
    pod = template()["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


def test_the_grace_period_is_longer_than_the_drain() -> None:
    pod = template(drain={"timeout": "60s", "deregisterDelay": "2500ms"})["spec"]
    assert pod["terminationGracePeriodSeconds"] == 63 + manifests.GRACE_MARGIN_S
    environment = {each["name"]: each.get("value") for each in sidecar({"spec": pod})["env"]}
    assert environment["FIRSTTOKEN_DRAIN_TIMEOUT_S"] == "60"
    assert environment["FIRSTTOKEN_DEREGISTER_DELAY_S"] == "2.5"


def test_flags_are_a_folder_of_the_revision_and_no_annotation_of_the_template() -> None:
    pod = template()
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    config_map = volumes["firsttoken-flags"]["configMap"]["name"]
    assert config_map == names.flags_config_map("chat", "abc")
    for container in (engine(pod), sidecar(pod)):
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == "firsttoken-flags"]
        assert mount["mountPath"] == names.FLAGS_FOLDER
        assert "subPath" not in mount
    assert names.ANNOTATION_FLAGS not in pod["metadata"].get("annotations", {})


def test_the_cold_settings_are_the_engine_s_arguments() -> None:
    pod = template(
        runtime={
            "device": "cpu",
            "dtype": "float32",
            "maxModelLen": 1024,
            "maxNumSeqs": 4,
            "extraArgs": ["--threads=2"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
        }
    )
    arguments = engine(pod)["args"]
    assert arguments[:2] == ["serve", "/models/smollm2.gguf"]
    assert {"--dtype=float32", "--max-model-len=1024", "--max-num-seqs=4", "--served-name=chat"} <= set(
        arguments
    )
    assert arguments[-1] == "--threads=2"
    assert {"name": "OMP_NUM_THREADS", "value": "2"} in engine(pod)["env"]


def test_a_container_that_is_only_slow_is_not_restarted() -> None:
    """The kubelet of a busy node waits at least half a minute, and ten seconds for each answer."""
    pod = template()
    for container in (engine(pod), sidecar(pod)):
        probe = container["livenessProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 30
        assert probe["timeoutSeconds"] >= 10


@pytest.mark.parametrize(("cpu", "threads"), [("400m", 1), ("1", 1), ("1500m", 2), ("4", 4)])
def test_the_engine_computes_on_as_many_threads_as_it_asks_cpus(cpu: str, threads: int) -> None:
    pod = template(resources={"cpu": cpu, "memory": "2Gi"})
    assert f"--threads={threads}" in engine(pod)["args"]


def test_threads_follow_the_cpu_request_in_whole_cores() -> None:
    for cpu, threads in (("400m", 1), ("1", 1), ("1500m", 2), ("2.5", 3), ("8", 8)):
        arguments = engine(template(resources={"cpu": cpu, "memory": "2Gi"}))["args"]
        assert f"--threads={threads}" in arguments


def test_gpus_are_asked_for_by_the_resource_s_name() -> None:
    pod = template(
        runtime={"device": "auto"},
        resources={"gpuResource": "firsttoken.test/gpu", "gpus": 1, "cpu": "2", "memory": "8Gi"},
    )
    resources = engine(pod)["resources"]
    assert resources["limits"] == {"memory": "8Gi", "firsttoken.test/gpu": "1"}
    assert resources["requests"]["cpu"] == "2"
    assert "cpu" not in resources["limits"]
    assert set(engine(template())["resources"]["limits"]) == {"memory"}


def test_what_users_add_to_the_pod() -> None:
    pod = template(
        podTemplate={
            "labels": {"team": "search"},
            "annotations": {"note": "x"},
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "registry"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "volumes": [{"name": "extra", "emptyDir": {}}],
            "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
            "fsGroup": 2000,
        }
    )
    assert pod["metadata"]["labels"]["team"] == "search"
    assert pod["metadata"]["labels"][names.LABEL_MANAGED] == "true"
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"zone": "a"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == manifests.serving_selector("chat")
    assert {"name": "extra", "emptyDir": {}} in spec["volumes"]
    assert {"name": "extra", "mountPath": "/extra"} in engine(pod)["volumeMounts"]
    assert spec["securityContext"]["fsGroup"] == 2000


def children() -> list[Object]:
    service = build.service()
    document = flags.document(flags.decide((), frozenset()), service.spec.slo, 1)
    return [
        manifests.deployment(service, "abc", template(), 2),
        manifests.controller_revision(service, "abc", 1, {}),
        manifests.flags_config_map(service, "abc", document),
        manifests.traffic_service(service),
        manifests.peers_service(service),
        manifests.disruption_budget(service),
        manifests.resolver_job(service, "chat-resolve-1", build.IMAGES),
    ]


@pytest.mark.parametrize(
    "child", children(), ids=lambda child: f"{child['kind']}-{child['metadata']['name']}"
)
def test_every_child_is_labelled_and_owned(child: Object) -> None:
    labels = child["metadata"]["labels"]
    assert labels[names.LABEL_MANAGED] == "true"
    assert labels[names.LABEL_SERVICE] == "chat"
    assert labels["app.kubernetes.io/managed-by"] == names.MANAGED_BY
    (owner,) = child["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-service", True)
    json.dumps(child)


def test_the_selectors_find_serving_pods_of_every_revision_and_no_others() -> None:
    selector = manifests.serving_selector("chat")
    assert selector.items() <= template()["metadata"]["labels"].items()
    job = manifests.resolver_job(build.service(), "j", build.IMAGES)
    assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()
    for child in (manifests.traffic_service(build.service()), manifests.peers_service(build.service())):
        assert child["spec"]["selector"] == selector
    deployment = manifests.deployment(build.service(), "abc", template(), 1)
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template()["metadata"]["labels"].items()


def test_the_node_port_is_stated_only_when_it_is_chosen() -> None:
    (port,) = manifests.traffic_service(build.service(service={"type": "NodePort"}))["spec"]["ports"]
    assert "nodePort" not in port
    chosen = build.service(service={"type": "NodePort", "nodePort": 8080})
    (port,) = manifests.traffic_service(chosen)["spec"]["ports"]
    assert port["nodePort"] == 8080


def test_the_flags_config_map_holds_what_the_sidecar_reads() -> None:
    (config_map,) = [child for child in children() if child["kind"] == "ConfigMap"]
    document = hot_settings.HotSettings.model_validate_json(config_map["data"][names.FLAGS_KEY])
    assert document.generation == 1


def test_the_resolver_gets_the_digest_and_no_gpu() -> None:
    service = build.service(model={"source": "pvc://models/a/b", "revision": "sha256:" + "0" * 64})
    job = manifests.resolver_job(service, "j", build.IMAGES)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["resolve", "/models/a/b"]
    assert f"--sha256={'0' * 64}" in container["args"]
    assert job["spec"]["backoffLimit"] == 0


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert manifests.digest({"a": 1, "b": [2]}) == manifests.digest({"b": [2], "a": 1})
    assert manifests.digest({"a": 1}) != manifests.digest({"a": "1"})
