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
    """Dotted, in the spelling of manifests, below `spec`."""
    message: str
    """What to do instead."""
    values: tuple[str, ...] = ()
    """The values; a trailing `*` stands for any ending. Empty: every value."""
    above: int | None = None
    """For numbers: every value above this."""

    def covers(self, value: Any) -> bool:
        """Whether a value of the field is one that is not built. Absent and empty values never are."""
        if value is None or value == "" or value == ():
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
    NotBuilt("runtime.engine", "only the engine firsttoken is part of this version", values=("vllm",)),
    NotBuilt("runtime.prefillPriority", "only normal is part of this version", values=("low",)),
    NotBuilt("autopilot", "only Disabled is part of this version", values=("Enabled",)),
    NotBuilt("resources.gpus", "at most one GPU for each replica in this version", above=1),
    NotBuilt("slo.tpotP95", "only ttftP95 is part of this version; remove it"),
    NotBuilt("slo.defaultClass", "request classes are not part of this version; remove it"),
    NotBuilt("slo.classes", "request classes are not part of this version; remove them"),
    NotBuilt("routes", "routes are not part of this version; remove them"),
    NotBuilt("cachePins", "the prefix cache is not part of this version; remove it"),
    NotBuilt("scaling.scaleDownWindow", "the scaler of the mode SLO is not part of this version; remove it"),
    NotBuilt("scaling.advisory", "the scaler of the mode SLO is not part of this version", values=("true",)),
    NotBuilt("gate", "the regression gate is not part of this version; remove it"),
    NotBuilt("rollout.soak", "soaking is not part of this version; remove it"),
    NotBuilt(
        "routing.strategy",
        "only None is part of this version",
        values=("PrefixAware", "LeastBacklog"),
    ),
    NotBuilt("routing.auth", "API keys are not part of this version; remove it"),
)


def _value(model: BaseModel, path: str) -> Any:
    """The value at a dotted path of field aliases. AssertionError if the model has no such field."""
    value: Any = model
    for part in path.split("."):
        if value is None:
            return None
        fields = type(value).model_fields
        name = next((n for n, field in fields.items() if (field.alias or n) == part), None)
        assert name is not None, f"{path}: {type(value).__name__} has no field {part}"
        value = getattr(value, name)
    return value


def _findings(spec: InferenceServiceSpec) -> Iterator[tuple[str, str]]:
    for entry in NOT_BUILT_FIELDS:
        value = _value(spec, entry.path)
        if entry.covers(value):
            shown = f" {value}" if isinstance(value, str | int) and not isinstance(value, bool) else ""
            yield f"spec.{entry.path}", f"spec.{entry.path}{shown} is not built yet: {entry.message}"


def not_built(spec: InferenceServiceSpec) -> list[tuple[str, str]]:
    """Every (path, message) of a set field that this version does not have, in the order of the table."""
    return list(_findings(spec))
