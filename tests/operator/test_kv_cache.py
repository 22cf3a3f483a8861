"""The KV cache in the pod: the host tier, whatever its flag's mode, and pinned prompts."""

from typing import Any

import pytest

from builders import observed as build
from builders.model_pod import engine, template
from firsttoken_api import names, quantity
from firsttoken_api.flags import FlagMode
from firsttoken_operator import kv_cache

Object = dict[str, Any]


def tiering(mode: FlagMode = FlagMode.FORCED, /, **params: str) -> list[Object]:
    """What `spec.optimizations` says."""
    return [{"name": "kv-tiering", "mode": mode.value, "params": params}]


def options(pod: Object) -> list[str]:
    return [each for each in engine(pod)["args"] if each.startswith("--host-")]


@pytest.mark.parametrize(
    ("memory", "host", "expected"),
    [("2Gi", "1Gi", "3Gi"), ("2Gi", "512Mi", "2560Mi"), ("2G", "1.5Gi", "3444Mi"), ("1000Gi", "24Gi", "1Ti")],
)
def test_host_memory_is_added_to_what_the_spec_gives(memory: str, host: str, expected: str) -> None:
    service = build.service(resources={"cpu": "1", "memory": memory}, optimizations=tiering(hostMemory=host))
    assert kv_cache.memory(service) == expected
    assert quantity.to_bytes(expected) >= quantity.to_bytes(memory) + quantity.to_bytes(host)


def test_without_host_memory_the_spec_s_text_stays_as_it_is() -> None:
    for asked in ([], tiering(), tiering(hostMemory="auto", claimName="")):
        pod = template(resources={"cpu": "1", "memory": "2048Mi"}, optimizations=asked)
        assert engine(pod)["resources"]["limits"]["memory"] == "2048Mi"
        assert options(pod) == []
        assert pod == template(resources={"cpu": "1", "memory": "2048Mi"})


@pytest.mark.parametrize("mode", FlagMode)
def test_a_hot_switch_of_the_flag_changes_nothing_of_the_pod(mode: FlagMode) -> None:
    params = {"hostMemory": "1024Mi", "claimName": "warm"}
    pod = template(optimizations=tiering(mode, **params))
    assert pod == template(optimizations=tiering(**params))
    assert engine(pod)["resources"]["requests"]["memory"] == "3Gi"
    assert options(pod) == [f"--host-folder={names.HOST_FOLDER}", "--host-memory=1Gi"]


def test_the_claim_is_mounted_in_the_engine_writable() -> None:
    pod = template(optimizations=tiering(claimName="warm"))
    assert {
        "name": kv_cache.HOST_VOLUME,
        "persistentVolumeClaim": {"claimName": "warm"},
    } in pod["spec"]["volumes"]
    assert {"name": kv_cache.HOST_VOLUME, "mountPath": names.HOST_FOLDER} in engine(pod)["volumeMounts"]
    (container,) = pod["spec"]["initContainers"]
    assert all(mount["name"] != kv_cache.HOST_VOLUME for mount in container["volumeMounts"])


def test_pinned_prompts_are_a_file_of_the_engine() -> None:
    pod = template(cachePins={"configMapRef": {"name": "pins"}})
    file = f"{names.CACHE_PINS_FOLDER}/{names.CACHE_PINS_KEY}"
    assert f"--cache-pins={file}" in engine(pod)["args"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == kv_cache.PINS_VOLUME]
    assert volume["configMap"]["name"] == "pins"
    assert [each["key"] for each in volume["configMap"]["items"]] == [names.CACHE_PINS_KEY]
    (mount,) = [each for each in engine(pod)["volumeMounts"] if each["name"] == kv_cache.PINS_VOLUME]
    assert (mount["mountPath"], mount["readOnly"]) == (names.CACHE_PINS_FOLDER, True)


def test_without_pins_an_engine_of_an_earlier_version_is_not_asked_for_them() -> None:
    assert not [each for each in engine(template())["args"] if each.startswith("--cache-pins")]
