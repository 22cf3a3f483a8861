"""How a bounded text enters pydantic and the schema; the bounds themselves are tested by each kind."""

from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from firsttoken_api import bounded_text, cel


class DigitsRange(bounded_text.Range):
    pattern = "[0-9]+"
    max_length = 5
    kind = "a number"
    units = " of things"

    def number(self, text: str) -> int:
        return int(text)

    def compared(self, value: str, sign: str, bound: str) -> str:
        return f"int({value}) {sign} {bound}"


class Digits(bounded_text.BoundedText):
    range_type = DigitsRange


class Letters(bounded_text.Values):
    pattern = "[a-z]+"
    max_length = 5
    kind = "a word"


class Model(BaseModel):
    size: Annotated[str, Digits("spec.size", "9", "20")]


@pytest.mark.parametrize("text", ["9", "10", "20"])
def test_values_within_the_bounds_stay_as_they_were_written(text: str) -> None:
    assert Model(size=text).size == text


@pytest.mark.parametrize("text", ["8", "21", "ten", "", "10 "])
def test_other_values_are_refused_in_the_words_of_the_rule(text: str) -> None:
    with pytest.raises(ValidationError, match=r"spec\.size must be a number from 9 to 20 of things"):
        Model(size=text)


def test_the_schema_carries_length_and_rule() -> None:
    schema = Model.model_json_schema()["properties"]["size"]
    assert schema["maxLength"] == 5
    (rule,) = schema[cel.RULES_KEY]
    assert rule["rule"] == "self.matches('[0-9]+') && int(self) >= 9 && int(self) <= 20"
    assert rule["message"] == "spec.size must be a number from 9 to 20 of things"


def test_a_range_may_have_no_end() -> None:
    endless = DigitsRange("9")
    assert endless.holds("99999999")
    assert not endless.holds("8")
    assert endless.allowed == "a number of at least 9 of things"
    assert endless.expression("x") == "x.matches('[0-9]+') && int(x) >= 9"


def test_values_without_bounds_are_told_by_their_pattern() -> None:
    assert Letters().holds("abc")
    assert not Letters().holds("a1")
    assert Letters().expression("x") == "x.matches('[a-z]+')"
    assert (Letters().allowed, Letters().span) == ("a word", "")
