"""Pydantic models as structural OpenAPI v3 schemas, the only kind a CRD may hold.

No `$ref`, no `anyOf`, no `null`: an optional field is one that may be absent. Pydantic's schema is
rewritten rather than written by hand, so that a field exists in one place.
"""

import inspect
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# What a structural schema may hold, in the order it is written.
_KEPT = (
    "description",
    "type",
    "format",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
)
_DROPPED = ("title", "additionalProperties", "$defs", "const", "anyOf", "propertyNames", "minProperties")


def schema_of(model: type[BaseModel]) -> Schema:
    """The structural schema of a model. AssertionError for what a structural schema cannot say."""
    schema = model.model_json_schema(by_alias=True)
    return _rewrite(schema, schema.get("$defs", {}), model.__name__)


def _inlined(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """The schema with its reference replaced; what stands beside the reference wins."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**definitions[reference.removeprefix("#/$defs/")], **beside}


def _without_null(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """`X | None` as X that may be absent."""
    choices = schema.get("anyOf")
    if choices is None:
        return schema
    real = [choice for choice in choices if choice != {"type": "null"}]
    assert len(real) == 1, f"a structural schema has no alternatives: {choices}"
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**_inlined(real[0], definitions), **beside}


def _rewrite(schema: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    schema = _inlined(_without_null(_inlined(schema, definitions), definitions), definitions)
    unknown = {k for k in schema if not k.startswith("x-kubernetes-")} - {*_KEPT, *_DROPPED}
    assert not unknown, f"{path}: {sorted(unknown)} cannot be said in a structural schema"
    result: Schema = {key: schema[key] for key in _KEPT if key in schema}
    if "description" in result:
        result["description"] = inspect.cleandoc(result["description"])
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if result.get("default") in (None, ""):
        result.pop("default", None)  # absent says the same
    if "properties" in result:
        result["properties"] = {
            name: _rewrite(value, definitions, f"{path}.{name}")
            for name, value in result["properties"].items()
        }
        result.pop("additionalProperties", None)  # closed: the API server prunes or, asked to, refuses
        if "default" in result:
            result["default"] = {}  # the fields have their own defaults
    elif isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = _rewrite(result["additionalProperties"], definitions, f"{path}.*")
        assert "maxProperties" in result, f"{path}: a map needs maxProperties"
    if "items" in result:
        result["items"] = _rewrite(result["items"], definitions, f"{path}[]")
    if result.get("type") == "array":
        assert "maxItems" in result, f"{path}: an array needs maxItems"
        result.pop("default", None)
    if result.get("type") == "string":
        assert "maxLength" in result or "enum" in result, f"{path}: a string needs maxLength"
    assert result.get("type") != "number", f"{path}: no floats in the API"
    result.update({key: value for key, value in schema.items() if key.startswith("x-kubernetes-")})
    return result
