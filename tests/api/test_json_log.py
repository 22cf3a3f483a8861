"""One JSON object a line, whatever is said."""

import json
import logging
import sys

from firsttoken_api import json_log


def record(message: str = "drained", *arguments: object, error: bool = False) -> logging.LogRecord:
    exc_info = sys.exc_info() if error else None
    made = logging.LogRecord(
        "firsttoken_sidecar.drain", logging.WARNING, __file__, 1, message, arguments, exc_info
    )
    made.created, made.msecs = 0.25, 250.0
    return made


def test_a_line() -> None:
    line = json_log.JsonFormatter().format(record("é\n%s", "x"))
    assert "\n" not in line
    assert "é" in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "sidecar.drain",
        "message": "é\nx",
    }


def test_fields_of_any_type_and_a_traceback() -> None:
    try:
        raise ValueError("inner")
    except ValueError:
        made = record(error=True)
    vars(made)[json_log.FIELDS] = {"open": 0, "path": b"x"}
    line = json.loads(json_log.JsonFormatter().format(made))
    assert (line["open"], line["path"]) == (0, "b'x'")
    assert "ValueError: inner" in line["exception"]
