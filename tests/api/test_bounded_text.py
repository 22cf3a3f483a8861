"""How a bounded text enters pydantic and the schema; the bounds themselves are tested by each kind."""

from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from firsttoken_api import cel
from firsttoken_api.bounded_text import BoundedText


class Digits(BoundedText):
    pattern = "[0-9]+"
    max_length = 5

    def parse(self, text: str) -> int:
        return int(text)

    @property
    def rule(self) -> cel.Rule:
        return cel.Rule("true", f"{self.field} must be from {self.minimum} to {self.maximum}")


class Model(BaseModel):
    size: Annotated[str, Digits("spec.size", "9", "20")]


@pytest.mark.parametrize("text", ["9", "10", "20"])
def test_values_within_the_bounds_stay_as_they_were_written(text: str) -> None:
    assert Model(size=text).size == text


@pytest.mark.parametrize("text", ["8", "21", "ten", "", "10 "])
def test_other_values_are_refused_in_the_words_of_the_rule(text: str) -> None:
    with pytest.raises(ValidationError, match=r"spec\.size must be from 9 to 20"):
        Model(size=text)


def test_the_schema_carries_length_and_rule() -> None:
    schema = Model.model_json_schema()["properties"]["size"]
    assert schema["maxLength"] == 5
    assert schema[cel.RULES_KEY] == [{"rule": "true", "message": "spec.size must be from 9 to 20"}]
