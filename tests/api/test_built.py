import ast
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from api import manifests
from firsttoken_api import built, inference_service
from firsttoken_api.inference_service import InferenceServiceSpec

OPERATOR = Path(__file__).resolve().parents[2] / "operator" / "firsttoken_operator"

# A manifest that sets each field of the list, by path.
SETS: dict[str, manifests.Object] = {
    "model.source": {"model": {"source": "oci://registry/image"}},
    "model.draft": {"model": {"draft": "pvc://models/small.gguf"}},
    "model.credentialsRef": {"model": {"credentialsRef": {"name": "token"}}},
    "model.cache": {"model": {"cache": {"claimName": "cache"}}},
    "autopilot": {"autopilot": "Enabled"},
    "resources.gpus": {"resources": {"gpus": 2}},
    "routes[].flags": {"routes": [{"name": "chat"}, {"name": "intent", "flags": ["semantic-cache"]}]},
    "routes[].params": {"routes": [{"name": "chat"}, {"name": "intent", "params": {"threshold": "0.97"}}]},
    "scaling.scaleDownWindow": {"scaling": {"scaleDownWindow": "300s"}},
    "scaling.advisory": {"scaling": {"advisory": True}},
    "gate": {"gate": {"suite": {"configMapRef": {"name": "evals"}}}},
    "rollout.soak": {"rollout": {"soak": "5m"}},
}


def _spec(patch: manifests.Object) -> InferenceServiceSpec:
    return inference_service.parse(manifests.service(patch)).spec


def test_every_row_is_tested_here() -> None:
    assert SETS.keys() == {entry.path for entry in built.NOT_BUILT_FIELDS}


@pytest.mark.parametrize("path", SETS)
def test_setting_the_field_is_found_and_named(path: str) -> None:
    found = built.not_built(_spec(SETS[path]))
    where = f"spec.{path.replace('[]', '[1]')}"
    assert [each for each, _ in found] == [where]
    assert where in found[0][1]


def test_what_is_not_built_of_a_route_is_named() -> None:
    route = {"name": "intent", "flags": ["semantic-cache", "kv-int8"], "params": {"threshold": "0.97"}}
    messages = [message for _, message in built.not_built(_spec({"routes": [route]}))]
    assert messages[0].startswith("spec.routes[0].flags (semantic-cache, kv-int8) is not built yet")
    assert messages[1].startswith("spec.routes[0].params (threshold) is not built yet")


def test_nothing_is_found_in_what_is_built() -> None:
    for case in manifests.VALID:
        if case.title != "field of a later version":
            assert built.not_built(_spec(case.spec)) == [], case.title


def test_allowed_values_of_the_same_fields_are_not_found() -> None:
    for patch in (
        {"runtime": {"engine": "firsttoken", "prefillPriority": "normal"}},
        {"autopilot": "Disabled"},
        {"resources": {"gpus": 1}, "scaling": {"advisory": False}},
        {"routes": [], "slo": {"classes": []}, "model": {"draft": ""}},
        {"routes": [{"name": "intent", "maxTokens": 64, "flags": [], "params": {}}]},
    ):
        assert built.not_built(_spec(patch)) == []


def test_every_finding_is_reported_at_once() -> None:
    found = built.not_built(_spec({"model": {"source": "s3://bucket/x"}, "autopilot": "Enabled"}))
    assert [path for path, _ in found] == ["spec.model.source", "spec.autopilot"]


def _words_of_the_operator() -> set[str]:
    """Every attribute that the operator's code reads and every string constant in it."""
    words = set()
    for path in OPERATOR.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                words.add(node.attr)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
    return words


def _submodels(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _submodels(argument)


def _suffix(annotation: Any) -> str:
    """How the path of a list goes on to the fields of its entries."""
    origins = {typing.get_origin(each) for each in (annotation, *typing.get_args(annotation))}
    return "[]" if tuple in origins else ""


def _leaves(model: type[BaseModel], path: str) -> Iterator[tuple[str, str, str]]:
    """(path, attribute, wire name) of every field that holds no further fields of ours."""
    for name, field in model.model_fields.items():
        alias = field.alias or name
        where = f"{path}.{alias}".lstrip(".")
        inner = [] if where in SETS else list(_submodels(field.annotation))
        # Parts of a pod are passed on as they are: what is inside of them is Kubernetes's.
        if not inner or path == "podTemplate":
            yield where, name, alias
        else:
            for each in inner:
                yield from _leaves(each, f"{where}{_suffix(field.annotation)}")


def test_every_field_is_either_in_the_list_or_read_by_the_operator() -> None:
    words = _words_of_the_operator()
    leaves = list(_leaves(InferenceServiceSpec, ""))
    assert len(leaves) > 50
    unread = [path for path, name, alias in leaves if name not in words and alias not in words]
    assert set(unread) <= SETS.keys(), "a field that nothing reads is a silent no-op: build it, or list it"


def test_no_field_of_the_list_is_read_by_the_operator_all_the_same() -> None:
    """Rows that cover every value: reading one would mean that it is built."""
    words = _words_of_the_operator()
    whole = [entry.path for entry in built.NOT_BUILT_FIELDS if not entry.values and entry.above is None]
    attributes = {alias: name for _, name, alias in _leaves(InferenceServiceSpec, "")}
    own = {path: attributes[path.rpartition(".")[2]] for path in whole}
    common_words = {"model.cache", "gate", "routes[].flags", "routes[].params"}
    assert {path for path, name in own.items() if name in words} <= common_words
