"""Every word that a person may write in a manifest: enum values, field names, flags and parameters."""

import importlib
import inspect
import pkgutil
from enum import StrEnum
from typing import Any

import firsttoken_api
from firsttoken_api import crd, flags


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


def all_words() -> set[str]:
    words = {value.value for enum in _enums() for value in enum}
    words |= _crd_words(crd.inference_services()) | _crd_words(crd.regression_evals())
    words |= {flag.name for flag in flags.FLAGS}
    words |= {parameter.name for flag in flags.FLAGS for parameter in flag.parameters}
    # Statuses of conditions are Kubernetes's words, and never written by people.
    return words - {"True", "False"}
