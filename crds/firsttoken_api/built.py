"""Fields of the API that this version does not have yet: the one list.

Setting one gives SpecAccepted=False, NotBuilt, with the field named, and nothing else is changed: a field
is never a silent no-op. Whoever builds a field removes its row; a test compares the list with the code.
Flags that are not built are refused earlier, by the CRD (see `flags` and `optimizations`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from firsttoken_api.inference_service import InferenceServiceSpec


@dataclass(frozen=True)
class NotBuilt:
    """A field, and which of its values this version does not have."""

    path: str
    """Dotted, in the spelling of manifests, below `spec`; `[]` after a list: each of its entries."""
    message: str
    """What to do instead."""
    values: tuple[str, ...] = ()
    """The values; a trailing `*` stands for any ending. Empty: every value."""
    above: int | None = None
    """For numbers: every value above this."""

    def covers(self, value: Any) -> bool:
        """Whether a value of the field is one that is not built. Absent and empty values never are."""
        if value is None or value in ("", (), {}):
            return False
        if self.above is not None:
            return bool(value > self.above)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not self.values:
            return text != "false"
        return any(text.startswith(v[:-1]) if v.endswith("*") else text == v for v in self.values)


NOT_BUILT_FIELDS: tuple[NotBuilt, ...] = (
    NotBuilt(
        "model.source",
        "only pvc://<claim>/<path> is part of this version",
        values=("hf://*", "s3://*", "oci://*"),
    ),
    NotBuilt("model.draft", "draft models are not part of this version; remove it"),
    NotBuilt("model.credentialsRef", "pvc:// sources need no credentials; remove it"),
    NotBuilt("model.cache", "pvc:// sources are read in place; remove it"),
    NotBuilt("autopilot", "only Disabled is part of this version", values=("Enabled",)),
    NotBuilt("resources.gpus", "at most one GPU for each replica in this version", above=1),
    NotBuilt("routes[].flags", "a route has only class and maxTokens in this version; remove it"),
    NotBuilt("routes[].params", "a route has only class and maxTokens in this version; remove it"),
    NotBuilt("scaling.scaleDownWindow", "the scaler of the mode SLO is not part of this version; remove it"),
    NotBuilt("scaling.advisory", "the scaler of the mode SLO is not part of this version", values=("true",)),
    NotBuilt("gate", "the regression gate is not part of this version; remove it"),
    NotBuilt("rollout.soak", "soaking is not part of this version; remove it"),
)


def _values(model: BaseModel | None, path: str) -> Iterator[tuple[str, Any]]:
    """(where, value) of every field at a dotted path of aliases. AssertionError if there is no such field."""
    if model is None:
        return
    part, _, rest = path.partition(".")
    alias = part.removesuffix("[]")
    fields = type(model).model_fields
    name = next((n for n, field in fields.items() if (field.alias or n) == alias), None)
    assert name is not None, f"{path}: {type(model).__name__} has no field {alias}"
    value = getattr(model, name)
    if not rest:
        yield alias, value
    elif part == alias:
        yield from ((f"{alias}.{where}", each) for where, each in _values(value, rest))
    else:
        for number, entry in enumerate(value):
            yield from ((f"{alias}[{number}].{where}", each) for where, each in _values(entry, rest))


def _findings(spec: InferenceServiceSpec) -> Iterator[tuple[str, str]]:
    for entry in NOT_BUILT_FIELDS:
        for where, value in _values(spec, entry.path):
            if entry.covers(value):
                yield f"spec.{where}", f"spec.{where}{_shown(value)} is not built yet: {entry.message}"


def _shown(value: Any) -> str:
    """A value that is short enough to be named, or the names in it."""
    if isinstance(value, tuple | dict):
        return f" ({', '.join(value)})" if all(isinstance(each, str) for each in value) else ""
    return f" {value}" if isinstance(value, str | int) and not isinstance(value, bool) else ""


def not_built(spec: InferenceServiceSpec) -> list[tuple[str, str]]:
    """Every (path, message) of a set field that this version does not have, in the order of the table."""
    return list(_findings(spec))
