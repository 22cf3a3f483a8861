"""docs/operations.md says what to do about every reason that asks for something, and invents none."""

import re
from pathlib import Path

from firsttoken_api import reasons

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
_ROWS = {word for row in re.findall(r"^\| ([A-Za-z, ]+) \|", PAGE, re.MULTILINE) for word in row.split(", ")}


def test_every_reason_with_a_remedy_is_there() -> None:
    wanted = {reason for reason, explanation in reasons.REASONS.items() if explanation.remedy}
    missing = {reason.value for reason in wanted if reason.value not in PAGE}
    assert missing == set()


def test_every_row_is_a_reason_or_a_column() -> None:
    columns = {"column", "reason", "READY", "REPLICAS", "TTFT-P95", "SLO", "FLAGS", "AGE"}
    assert _ROWS - columns - {reason.value for reason in reasons.Reason} == set()


def test_every_heading_names_conditions() -> None:
    named = set(re.findall(r"(\w+) is (?:True|False)", PAGE))
    assert named <= {condition.value for condition in reasons.ConditionType}
