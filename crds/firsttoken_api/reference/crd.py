"""The page of the API: every field of both kinds, from the schemas that the API server has."""

from collections.abc import Iterator
from typing import Any

from firsttoken_api import built, cel, crd
from firsttoken_api.reference.markdown import code, table

Schema = dict[str, Any]


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in schema:
        return " | ".join(code(value) for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema["type"])


def _default(schema: Schema) -> str:
    default = schema.get("default", {})
    if default == {}:
        return ""
    return code(str(default).lower() if isinstance(default, bool) else str(default))


def _rule(message: str, path: str) -> str:
    """The message as a sentence of the field's own row."""
    text = message.removeprefix(f"{path} ")
    return f"{text[0].upper()}{text[1:]}." if text != message else f"{message}."


def _bounds(schema: Schema, path: str) -> Iterator[str]:
    if "minimum" in schema or "maximum" in schema:
        yield f"{schema.get('minimum', '…')} to {schema.get('maximum', '…')}."
    if "maxItems" in schema:
        yield f"At most {schema['maxItems']} entries."
    yield from (_rule(rule["message"], path) for rule in schema.get(cel.RULES_KEY, ()))


def _fields(schema: Schema, path: str, required: bool) -> Iterator[tuple[str, ...]]:
    described = schema.get("description", "")
    later = [entry.message for entry in built.NOT_BUILT_FIELDS if f"spec.{entry.path}" == path]
    notes = [f"**This version**: {text}." for text in later]
    must = "required" if required else _default(schema)
    yield (code(path), _type(schema), must, " ".join([described, *_bounds(schema, path), *notes]))
    inner, suffix = (schema["items"], "[]") if schema.get("type") == "array" else (schema, "")
    for name, each in inner.get("properties", {}).items():
        yield from _fields(each, f"{path}{suffix}.{name}", name in inner.get("required", ()))


def _part(document: Schema, part: str) -> str:
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    header = ("field", "type", "default", "meaning")
    return table(header, _fields(root["properties"][part], part, required=part == "spec"))


def _kind(document: Schema) -> str:
    names = document["spec"]["names"]
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    rules = "".join(f"- {rule['message']}\n" for rule in root.get(cel.RULES_KEY, ()))
    return f"""## {names["kind"]}

{root["description"]} Plural `{names["plural"]}`, short `{names["shortNames"][0]}`.

{rules}
{_part(document, "spec")}
### Status

{_part(document, "status")}"""


def page() -> str:
    """docs/reference/crd.md."""
    return f"""# API

Group `firsttoken.dev`, version `v1alpha1`. The API server refuses values outside of what this page says,
with a message that names the field. Fields that it does not know it drops; `kubectl apply --validate=strict`
(and kubectl's default) refuses them, and so does `firsttoken validate FILE`, which needs no cluster.

Where a row says **This version**, other values are accepted by the API server and reported by the operator
as `SpecAccepted=False`, reason `NotBuilt`; while they are set, the operator changes nothing for that service.

{_kind(crd.inference_services())}
{_kind(crd.regression_evals())}"""
