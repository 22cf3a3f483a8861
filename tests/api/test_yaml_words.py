"""No word of the API is a YAML 1.1 boolean or null: `on` would arrive as true."""

import importlib
import inspect
import pkgutil
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml

import firsttoken_api
from api import manifests
from firsttoken_api import crd, flags, inference_service

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _enums() -> list[type[StrEnum]]:
    found = []
    for module_info in pkgutil.iter_modules(firsttoken_api.__path__):
        module = importlib.import_module(f"firsttoken_api.{module_info.name}")
        found += [
            value
            for value in vars(module).values()
            if inspect.isclass(value) and issubclass(value, StrEnum) and value is not StrEnum
        ]
    return found


def _crd_words(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {word for each in schema for word in _crd_words(each)}
    if not isinstance(schema, dict):
        return set()
    own = {word for word in schema.get("enum", []) if isinstance(word, str)}
    own |= set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {word for value in schema.values() for word in _crd_words(value)}


def test_no_word_is_read_as_something_else() -> None:
    words = {value.value for enum in _enums() for value in enum}
    words |= _crd_words(crd.inference_services()) | _crd_words(crd.regression_evals())
    words |= {flag.name for flag in flags.FLAGS}
    words |= {parameter.name for flag in flags.FLAGS for parameter in flag.parameters}
    words -= {
        "True",
        "False",
        "Unknown",
    }  # statuses of conditions: Kubernetes's words, never written by people
    assert len(words) > 200
    assert {word: yaml.safe_load(word) for word in words} == {word: word for word in words}


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_examples_are_valid(name: str) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    services = [each for each in documents if each["kind"] == "InferenceService"]
    assert services
    for body in services:
        inference_service.parse(body)


def test_every_example_is_in_the_list() -> None:
    holding = {path.name for path in EXAMPLES.glob("*.yaml") if "kind: InferenceService" in path.read_text()}
    assert holding == set(manifests.EXAMPLES)
