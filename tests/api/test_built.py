import pytest

from api import manifests
from firsttoken_api import built, inference_service
from firsttoken_api.inference_service import InferenceServiceSpec

# A manifest that sets each field of the list, by path.
SETS: dict[str, manifests.Object] = {
    "model.source": {"model": {"source": "oci://registry/image"}},
    "model.draft": {"model": {"draft": "pvc://models/small.gguf"}},
    "model.credentialsRef": {"model": {"credentialsRef": {"name": "token"}}},
    "model.cache": {"model": {"cache": {"claimName": "cache"}}},
    "runtime.engine": {"runtime": {"engine": "vllm"}},
    "runtime.prefillPriority": {"runtime": {"prefillPriority": "low"}},
    "autopilot": {"autopilot": "Enabled"},
    "resources.gpus": {"resources": {"gpus": 2}},
    "slo.tpotP95": {"slo": {"tpotP95": "50ms"}},
    "slo.defaultClass": {"slo": {"defaultClass": "interactive"}},
    "slo.classes": {"slo": {"classes": [{"name": "batch", "ttftP99": "8s"}]}},
    "routes": {"routes": [{"name": "intent", "class": "interactive", "maxTokens": 64}]},
    "cachePins": {"cachePins": {"configMapRef": {"name": "pins"}}},
    "scaling.scaleDownWindow": {"scaling": {"scaleDownWindow": "300s"}},
    "scaling.advisory": {"scaling": {"advisory": True}},
    "gate": {"gate": {"suite": {"configMapRef": {"name": "evals"}}}},
    "rollout.soak": {"rollout": {"soak": "5m"}},
    "routing.strategy": {"routing": {"strategy": "PrefixAware"}},
    "routing.auth": {"routing": {"auth": {"secretRef": {"name": "keys"}}}},
}


def _spec(patch: manifests.Object) -> InferenceServiceSpec:
    return inference_service.parse(manifests.service(patch)).spec


def test_every_row_is_tested_here() -> None:
    assert SETS.keys() == {entry.path for entry in built.NOT_BUILT_FIELDS}


@pytest.mark.parametrize("path", SETS)
def test_setting_the_field_is_found_and_named(path: str) -> None:
    found = built.not_built(_spec(SETS[path]))
    assert [where for where, _ in found] == [f"spec.{path}"]
    assert f"spec.{path}" in found[0][1]


def test_nothing_is_found_in_what_is_built() -> None:
    for case in manifests.VALID:
        if case.title != "field of a later version":
            assert built.not_built(_spec(case.spec)) == [], case.title


def test_allowed_values_of_the_same_fields_are_not_found() -> None:
    for patch in (
        {"runtime": {"engine": "firsttoken", "prefillPriority": "normal"}},
        {"autopilot": "Disabled", "routing": {"strategy": "None"}},
        {"resources": {"gpus": 1}, "scaling": {"advisory": False}},
        {"routes": [], "slo": {"classes": []}, "model": {"draft": ""}},
    ):
        assert built.not_built(_spec(patch)) == []


def test_every_finding_is_reported_at_once() -> None:
    found = built.not_built(_spec({"model": {"source": "s3://bucket/x"}, "autopilot": "Enabled"}))
    assert [path for path, _ in found] == ["spec.model.source", "spec.autopilot"]
