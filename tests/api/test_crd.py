from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from firsttoken_api import crd, flags

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [crd.inference_services(), crd.regression_evals()]


def test_the_files_are_what_the_models_say() -> None:
    assert crd.main(["--check", "--root", str(ROOT)]) == 0, "run: python -m firsttoken_api.crd"


def test_check_sees_a_difference_and_writing_mends_it(tmp_path: Path) -> None:
    (tmp_path / "charts" / "firsttoken").mkdir(parents=True)
    assert crd.main(["--check", "--root", str(tmp_path)]) == 1
    assert crd.main(["--root", str(tmp_path)]) == 0
    assert crd.main(["--check", "--root", str(tmp_path)]) == 0
    name = "inferenceservices.firsttoken.dev.yaml"
    ours = tmp_path / "crds" / name
    assert (tmp_path / "charts/firsttoken/files/crds" / name).read_bytes() == ours.read_bytes()
    ours.write_text(ours.read_text() + "# edited\n")
    assert crd.main(["--check", "--root", str(tmp_path)]) == 1


def _schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from _schemas(each, f"{path}.{name}")
    if "items" in schema:
        yield from _schemas(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from _schemas(schema["additionalProperties"], f"{path}.*")


def _all() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for document in DOCUMENTS:
        root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            found += list(_schemas(root["properties"][part], part))
    return found


def test_everything_is_bounded() -> None:
    for path, schema in _all():
        kind = schema.get("type")
        assert kind in {"object", "array", "string", "integer", "boolean"} or (
            kind is None and schema["x-kubernetes-int-or-string"]
        ), path
        if kind == "string":
            assert "maxLength" in schema or "enum" in schema, path
        if kind == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


def test_the_lists_that_others_patch_are_maps() -> None:
    by_path = dict(_all())
    for path, key in (
        ("spec.optimizations", "name"),
        ("spec.slo.classes", "name"),
        ("spec.routes", "name"),
        ("status.conditions", "type"),
        ("status.optimizations", "name"),
    ):
        assert by_path[path]["x-kubernetes-list-type"] == "map"
        assert by_path[path]["x-kubernetes-list-map-keys"] == [key]


def test_every_rule_names_a_field() -> None:
    rules = [(path, rule) for path, s in _all() for rule in s.get("x-kubernetes-validations", [])]
    assert len(rules) > 30
    for path, rule in rules:
        assert any(word in rule["message"] for word in ("spec.", "metadata.name", "RegressionEval")), path


def test_scale_has_what_an_autoscaler_needs() -> None:
    version = DOCUMENTS[0]["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    by_path = dict(_all())
    assert by_path[scale["specReplicasPath"].removeprefix(".")]["default"] == 1
    assert by_path["spec.scaling"]["default"] == {}
    assert by_path[scale["statusReplicasPath"].removeprefix(".")]["type"] == "integer"
    assert by_path[scale["labelSelectorPath"].removeprefix(".")]["type"] == "string"


def test_columns() -> None:
    columns = DOCUMENTS[0]["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["READY", "REPLICAS", "TTFT-P95", "SLO", "FLAGS", "AGE"]


def test_the_flag_rule_lists_exactly_the_built_flags() -> None:
    (rule,) = dict(_all())["spec.optimizations[].name"]["x-kubernetes-validations"]
    assert all(f"'{name}'" in rule["rule"] for name in flags.BUILT)
    assert not any(f"'{flag.name}'" in rule["rule"] for flag in flags.FLAGS if not flag.built)


def test_what_a_later_version_brings_has_no_default() -> None:
    by_path = dict(_all())
    for path in (
        "spec.slo.tpotP95",
        "spec.slo.defaultClass",
        "spec.slo.classes",
        "spec.rollout.soak",
        "spec.gate",
        "spec.scaling.scaleDownWindow",
    ):
        assert "default" not in by_path[path], path


@pytest.mark.parametrize("name", crd.files())
def test_kubectl_apply_can_remember_the_file(name: str) -> None:
    text = crd.files()[name]
    assert len(text.encode()) < 128 * 1024
    assert yaml.safe_load(text)["metadata"]["name"] + ".yaml" == name
    assert "$ref" not in text
    assert "anyOf" not in text
