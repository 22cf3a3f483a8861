import copy
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import firsttoken_api
from api import manifests
from api.manifests import Case
from firsttoken_api import cel, crd, inference_service
from firsttoken_api.base import SpecModel
from firsttoken_api.scaling import ScalingMode


def _messages(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _messages(each)
    if isinstance(schema, dict):
        yield from (rule["message"] for rule in schema.get(cel.RULES_KEY, ()))
        yield from _messages(list(schema.values()))


RULES = list(_messages(crd.inference_services()))


@pytest.mark.parametrize("case", manifests.VALID, ids=lambda case: case.title)
def test_accepts_what_the_api_server_accepts(case: Case) -> None:
    service = inference_service.parse(case.manifest())
    assert service.metadata.name == case.name


@pytest.mark.parametrize("case", manifests.INVALID, ids=lambda case: case.title)
def test_refuses_what_the_api_server_refuses_and_for_rules_in_the_same_words(case: Case) -> None:
    with pytest.raises(ValidationError) as caught:
        inference_service.parse(case.manifest())
    words = case.says[1:] or case.says
    if any(all(word in message for word in words) for message in RULES):
        assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("case", manifests.UNKNOWN_FIELDS, ids=lambda case: case.title)
def test_refuses_unknown_fields(case: Case) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        inference_service.parse(case.manifest())


def test_defaults() -> None:
    service = inference_service.parse(manifests.service())
    assert service.served_name == "chat"
    assert service.spec.scaling.mode is ScalingMode.SLO
    assert service.spec.scaling.replicas == 1
    assert service.spec.model.claim_name == "models"
    assert service.spec.model.path == "smollm2.gguf"


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({}, 1),
        ({"runtime": {"device": "cpu"}}, 0),
        ({"resources": {"gpus": 0}}, 0),
        ({"runtime": {"device": "cuda"}, "resources": {"gpus": 4}}, 4),
    ],
)
def test_gpus_follow_the_device(spec: manifests.Object, gpus: int) -> None:
    assert inference_service.parse(manifests.service(spec)).spec.gpus == gpus


def test_what_is_written_is_read_again() -> None:
    for case in manifests.VALID:
        service = inference_service.parse(case.manifest())
        again = inference_service.parse(service.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert again == service


def test_reading_changes_nothing() -> None:
    body = manifests.VALID[-1].manifest()
    before = copy.deepcopy(body)
    inference_service.parse(body)
    assert body == before


def _models() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    for module_info in pkgutil.iter_modules(firsttoken_api.__path__):
        module = importlib.import_module(f"firsttoken_api.{module_info.name}")
        found += [
            value
            for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, SpecModel) and value.__module__ == module.__name__
        ]
    return found


def test_every_spec_model_is_closed_and_described() -> None:
    models = _models()
    assert len(models) > 40
    for model in models:
        assert model.model_config["frozen"], model
        assert model.__doc__, model
        is_open = model is inference_service.ObjectMeta
        assert model.model_config["extra"] == ("ignore" if is_open else "forbid"), model
