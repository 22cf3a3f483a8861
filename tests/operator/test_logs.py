"""One JSON object a line, or text."""

import json
import logging
from collections.abc import Iterator

import pytest

from firsttoken_operator import logs


@pytest.fixture(autouse=True)
def _root_is_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def test_a_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", "json")
    logging.getLogger("firsttoken_operator.apply").info("said %s", "this")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("info", "operator.apply", "said this")


def test_libraries_speak_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", "text")
    logging.getLogger("kopf.activities").info("chatter")
    logging.getLogger("firsttoken_operator").info("ours")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "ours" in lines[0]
