"""Rules say the same in CEL and in Python; the API server's own judgement is in the e2e scenarios."""

import pytest

from firsttoken_api import cel


def test_a_rule_carries_what_the_api_server_needs_and_nothing_empty() -> None:
    assert cel.Rule("self > 0", "must be positive").to_schema() == {
        "rule": "self > 0",
        "message": "must be positive",
    }
    full = cel.Rule("self.a > 0", "must be positive", field_path=".a", message_expression="'is ' + self.a")
    assert full.to_schema()["fieldPath"] == ".a"
    assert full.to_schema()["messageExpression"] == "'is ' + self.a"


def test_the_python_side_says_the_same_sentence() -> None:
    rule = cel.Rule("false", "must be one of the classes")
    rule.check(True)
    with pytest.raises(ValueError, match=r"^must be one of the classes$"):
        rule.check(False)
    with pytest.raises(ValueError, match=r"^must be one of the classes: a, b$"):
        rule.check(False, "a, b")


def test_a_joined_list_reaches_every_entry_and_no_further() -> None:
    text = cel.joined("self.items", "name", 3)
    assert [f"self.items[{number}].name" in text for number in range(4)] == [True, True, True, False]
    assert text.startswith("(size(self.items) > 0 ? self.items[0].name : '')")
    assert text.count("', '") == 2
