"""CEL rules beside the Python check they mirror: one message, two validators.

The API server evaluates the expression; `firsttoken validate`, which has no API server, and the operator,
which must not trust an old CRD, run the Python check. Both answer with the same sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RULES_KEY = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    expression: str
    message: str
    """What is wrong, with the field and the allowed values."""
    field_path: str = ""
    """Relative path of the field to blame (`.max`), for rules that look at several fields."""
    message_expression: str = ""
    """CEL for a message with values of the object in it; the API server says `message` where it fails."""

    def to_schema(self) -> dict[str, str]:
        schema = {"rule": self.expression, "message": self.message}
        if self.message_expression:
            schema["messageExpression"] = self.message_expression
        if self.field_path:
            schema["fieldPath"] = self.field_path
        return schema

    def check(self, holds: bool, allowed: str = "") -> None:
        """The Python side; `allowed` is what the message's expression adds. Raises ValueError (pydantic
        reports it with the field's path)."""
        if not holds:
            raise ValueError(f"{self.message}: {allowed}" if allowed else self.message)


def rules(*entries: Rule) -> dict[str, Any]:
    """`json_schema_extra` that carries the rules into the CRD."""
    return {RULES_KEY: [entry.to_schema() for entry in entries]}


def list_map(*keys: str) -> dict[str, Any]:
    """`json_schema_extra` of an array that server-side apply merges by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def merged(*extras: Mapping[str, Any]) -> dict[str, Any]:
    """Several `json_schema_extra` as one."""
    result: dict[str, Any] = {}
    for extra in extras:
        result.update(extra)
    return result


def joined(items: str, attribute: str, most: int) -> str:
    """CEL for the attribute of every entry of a list of at most `most`, with commas. Written out entry by
    entry: the API server takes a `join` for something of unbounded cost and refuses the definition."""
    parts = [
        f"(size({items}) > {number} ? {separator}{items}[{number}].{attribute} : '')"
        for number, separator in enumerate(["", *["', ' + "] * (most - 1)])
    ]
    return " + ".join(parts)


def quoted_list(values: tuple[str, ...]) -> str:
    """A CEL list literal of strings."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
