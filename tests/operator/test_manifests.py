"""What the children look like: the parts that others rely on."""

import json
from typing import Any

import pytest

from builders import observed as build
from builders.model_pod import REVISION, template
from firsttoken_api import hot_settings, names
from firsttoken_operator import flags, manifests, objects, resolver_job

Object = dict[str, Any]


def children() -> list[Object]:
    service = build.service()
    document = flags.document(flags.decide((), frozenset()), service.spec, 1)
    return [
        manifests.deployment(service, REVISION, template(), 2),
        manifests.controller_revision(service, REVISION, 1, {}),
        manifests.flags_config_map(service, REVISION, document),
        manifests.traffic_service(service),
        manifests.peers_service(service),
        manifests.disruption_budget(service),
        resolver_job.render(service, "chat-resolve-1", build.IMAGES),
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
    selector = objects.serving_selector("chat")
    assert selector.items() <= template()["metadata"]["labels"].items()
    job = resolver_job.render(build.service(), "j", build.IMAGES)
    assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()
    for child in (manifests.traffic_service(build.service()), manifests.peers_service(build.service())):
        assert child["spec"]["selector"] == selector
    deployment = manifests.deployment(build.service(), REVISION, template(), 1)
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
