"""The model pod: the parts that others rely on."""

from builders.model_pod import REVISION, engine, sidecar, template
from firsttoken_api import names
from firsttoken_operator import objects, pods


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
    assert pod["terminationGracePeriodSeconds"] == 63 + pods.GRACE_MARGIN_S
    environment = {each["name"]: each.get("value") for each in sidecar({"spec": pod})["env"]}
    assert environment["FIRSTTOKEN_DRAIN_TIMEOUT_S"] == "60"
    assert environment["FIRSTTOKEN_DEREGISTER_DELAY_S"] == "2.5"


def test_flags_are_a_folder_of_the_revision_and_no_annotation_of_the_template() -> None:
    pod = template()
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    config_map = volumes["firsttoken-flags"]["configMap"]["name"]
    assert config_map == names.flags_config_map("chat", REVISION)
    for container in (engine(pod), sidecar(pod)):
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == "firsttoken-flags"]
        assert mount["mountPath"] == names.FLAGS_FOLDER
        assert "subPath" not in mount
    assert names.ANNOTATION_FLAGS not in pod["metadata"].get("annotations", {})


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
    assert spread["labelSelector"]["matchLabels"] == objects.serving_selector("chat")
    assert {"name": "extra", "emptyDir": {}} in spec["volumes"]
    assert {"name": "extra", "mountPath": "/extra"} in engine(pod)["volumeMounts"]
    assert spec["securityContext"]["fsGroup"] == 2000
