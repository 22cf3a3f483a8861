from typing import Annotated, Any

import pytest
from pydantic import Field

from firsttoken_api import structural
from firsttoken_api.base import SpecModel


class Inner(SpecModel):
    """Inner things."""

    text: Annotated[str, Field(max_length=3)] = "abc"


class Outer(SpecModel):
    """Outer things."""

    inner: Inner = Inner()
    maybe: Inner | None = None
    number_of_things: Annotated[int, Field(ge=1)] | None = None
    listed: Annotated[tuple[Inner, ...], Field(max_length=2)] = ()


def test_references_are_inlined_and_null_is_absence() -> None:
    schema = structural.schema_of(Outer)
    inner = {
        "description": "Inner things.",
        "type": "object",
        "properties": {"text": {"type": "string", "default": "abc", "maxLength": 3}},
    }
    assert schema["properties"]["inner"] == {**inner, "default": {}}
    assert schema["properties"]["maybe"] == inner
    assert schema["properties"]["numberOfThings"] == {"type": "integer", "minimum": 1}
    assert schema["properties"]["listed"] == {"type": "array", "maxItems": 2, "items": inner}


class UnboundedList(SpecModel):
    values: tuple[int, ...] = ()


class UnboundedText(SpecModel):
    value: str = ""


class UnboundedMap(SpecModel):
    value: dict[Annotated[str, Field(max_length=3)], int] = Field(default_factory=dict)


class WithFloat(SpecModel):
    value: float = 0.5


class WithAlternatives(SpecModel):
    value: int | bool = 0


@pytest.mark.parametrize(
    "model",
    [UnboundedList, UnboundedText, UnboundedMap, WithFloat, WithAlternatives],
    ids=lambda m: m.__name__,
)
def test_what_the_api_server_could_not_bound_is_our_mistake(model: Any) -> None:
    with pytest.raises(AssertionError):
        structural.schema_of(model)
