from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from firsttoken_api import duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1ms", 1),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1m30s", 90_000),
        ("2h", 7_200_000),
        ("0s", 0),
    ],
)
def test_reads(text: str, milliseconds: int) -> None:
    assert duration.to_milliseconds(text) == milliseconds
    assert duration.to_seconds(text) == milliseconds / 1000


@pytest.mark.parametrize("text", ["", "5", "5d", "1.5s", "-1s", "1 s", "s", "1s\n", "1h1h1h1h1h"])
def test_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration.to_milliseconds(text)


def test_bounds_are_in_the_schema_and_in_the_message() -> None:
    adapter = TypeAdapter(Annotated[str, duration.Within("spec.x", "10ms", "1m")])
    assert adapter.validate_python("10ms") == "10ms"
    for wrong in ("9ms", "61s", "soon"):
        with pytest.raises(ValidationError, match=r"spec.x must be a duration from 10ms to 1m"):
            adapter.validate_python(wrong)
    schema = adapter.json_schema()
    assert schema["maxLength"] == duration.MAX_LENGTH
    assert "duration('10ms')" in schema["x-kubernetes-validations"][0]["rule"]
