"""One JSON object a line, or text."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from firsttoken_operator import logs


@pytest.fixture(autouse=True)
def _root_is_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def test_a_json_line_with_its_traceback() -> None:
    try:
        raise ValueError("inner")
    except ValueError:
        record = logging.LogRecord("a.b", logging.ERROR, "f", 1, "said %s", ("this",), sys.exc_info())
    line = json.loads(logs.JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("error", "a.b", "said this")
    assert "ValueError: inner" in line["exception"]
    assert line["time"].endswith("+00:00")


def test_libraries_speak_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("INFO", "text")
    logging.getLogger("kopf.activities").info("chatter")
    logging.getLogger("firsttoken_operator").info("ours")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "ours" in lines[0]
