"""`spec.slo`: the latency objective, and request classes with objectives of their own."""

from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from firsttoken_api import cel, duration
from firsttoken_api.base import SpecModel

MOST_CLASSES = 8
ClassName = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


def joined_classes(path: str) -> str:
    """CEL for the declared classes in a message."""
    names = cel.joined(path, "name", MOST_CLASSES)
    return f"(has({path}) && size({path}) > 0 ? {names} : 'none')"


def class_list(class_names: tuple[str, ...]) -> str:
    """The declared classes, as the messages of rules end."""
    return ", ".join(class_names) or "none"


class RequestClass(SpecModel):
    """A class of requests."""

    name: ClassName
    """Name that requests and routes use."""
    ttft_p99: Annotated[str, duration.Within("spec.slo.classes[].ttftP99", "1ms", "10m")]
    """99th percentile of the time to first token."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Larger is more urgent: requests of a more urgent class are computed first, while the flag priority is
    on."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """While the flag length-control is on: max_tokens of requests that give none, and the output budget of a
    request, past which it counts as of the next less urgent class."""


def _check_names(classes: tuple[RequestClass, ...]) -> tuple[RequestClass, ...]:
    """What the API server checks by the list's map key."""
    if len({each.name for each in classes}) != len(classes):
        raise ValueError("spec.slo.classes names a class twice")
    return classes


DEFAULT_CLASS_EXISTS = cel.Rule(
    "!has(self.defaultClass)"
    " || (has(self.classes) && self.classes.exists(each, each.name == self.defaultClass))",
    "spec.slo.defaultClass must be the name of one of spec.slo.classes",
    field_path=".defaultClass",
    message_expression="'spec.slo.defaultClass must be the name of one of spec.slo.classes: '"
    f" + {joined_classes('self.classes')}",
)


class SloSpec(SpecModel):
    """The latency objective."""

    model_config = ConfigDict(json_schema_extra=cel.rules(DEFAULT_CLASS_EXISTS))

    ttft_p95: Annotated[str, duration.Within("spec.slo.ttftP95", "1ms", "10m")] = "500ms"
    """95th percentile of the time to first token, requests that still wait included."""
    tpot_p95: Annotated[str, duration.Within("spec.slo.tpotP95", "1ms", "1m")] | None = None
    """95th percentile of the time per output token. While it is exceeded, prompts get less of each step."""
    window: Annotated[str, duration.Within("spec.slo.window", "10s", "1h")] = "5m"
    """Time over which percentiles are taken."""
    default_class: ClassName | None = None
    """Class of requests that name none, where there are classes; by default the first of them."""
    classes: Annotated[
        tuple[RequestClass, ...],
        Field(max_length=MOST_CLASSES, json_schema_extra=cel.list_map("name")),
        AfterValidator(_check_names),
    ] = ()
    """Request classes. None: one class, with ttftP95 as its objective."""

    @model_validator(mode="after")
    def _default_class_exists(self) -> Self:
        DEFAULT_CLASS_EXISTS.check(
            self.default_class is None or self.default_class in self.class_names,
            class_list(self.class_names),
        )
        return self

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.classes)
