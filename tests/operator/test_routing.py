"""`spec.routing` in the pod: peers, API keys, and what stays out."""

from typing import Any

import pytest

from builders.model_pod import engine, sidecar, template
from firsttoken_api import names
from firsttoken_operator import routing

KEYS = {"auth": {"secretRef": {"name": "chat-keys"}}}
NEITHER = template(routing={"strategy": "None"})


def env(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in sidecar(pod)["env"]}


def test_by_default_the_sidecar_knows_its_peers_and_itself() -> None:
    pod = template()
    assert env(pod)["FIRSTTOKEN_PEERS_HOST"] == "chat-peers.default.svc"
    assert env(pod)["FIRSTTOKEN_ROUTING_STRATEGY"] == "PrefixAware"
    assert {
        "name": "FIRSTTOKEN_POD_IP",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    } in sidecar(pod)["env"]
    (info,) = [each for each in pod["spec"]["volumes"] if each["name"] == "firsttoken-pod"]
    paths = {each["path"]: each["fieldRef"]["fieldPath"] for each in info["downwardAPI"]["items"]}
    assert paths == {"annotations": "metadata.annotations", "labels": "metadata.labels"}
    assert "FIRSTTOKEN_AUTH_FOLDER" not in env(pod)


@pytest.mark.parametrize("strategy", ["PrefixAware", "LeastBacklog"])
def test_the_strategy_is_the_spec_s(strategy: str) -> None:
    pod = template(routing={"strategy": strategy})
    assert env(pod)["FIRSTTOKEN_ROUTING_STRATEGY"] == strategy
    assert routing.has_peers(pod)


def test_without_routing_and_keys_nothing_is_added() -> None:
    assert not routing.has_peers(NEITHER)
    assert (
        not {"FIRSTTOKEN_PEERS_HOST", "FIRSTTOKEN_ROUTING_STRATEGY", "FIRSTTOKEN_AUTH_FOLDER"}
        & env(NEITHER).keys()
    )
    (info,) = [each for each in NEITHER["spec"]["volumes"] if each["name"] == "firsttoken-pod"]
    assert [each["path"] for each in info["downwardAPI"]["items"]] == [names.POD_ANNOTATIONS_FILE]


def test_keys_are_a_folder_that_only_the_sidecar_mounts() -> None:
    pod = template(routing=KEYS)
    assert env(pod)["FIRSTTOKEN_AUTH_FOLDER"] == names.AUTH_FOLDER
    (volume,) = [each for each in pod["spec"]["volumes"] if "secret" in each]
    assert volume["secret"] == {
        "secretName": "chat-keys",
        "items": [{"key": "keys.yaml", "path": "keys.yaml"}],
        "defaultMode": 0o440,
        "optional": False,
    }
    (mount,) = [each for each in sidecar(pod)["volumeMounts"] if each["name"] == volume["name"]]
    assert mount == {"name": volume["name"], "mountPath": names.AUTH_FOLDER, "readOnly": True}
    assert volume["name"] not in {each["name"] for each in engine(pod)["volumeMounts"]}


def test_keys_alone_are_the_only_difference() -> None:
    pod = template(routing={"strategy": "None"} | KEYS)
    assert env(pod).keys() - env(NEITHER).keys() == {"FIRSTTOKEN_AUTH_FOLDER"}
    assert len(pod["spec"]["volumes"]) == len(NEITHER["spec"]["volumes"]) + 1
    assert engine(pod) == engine(NEITHER)
