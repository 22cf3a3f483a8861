import json
import logging

import pytest

from firsttoken_api import json_log
from firsttoken_sidecar import logs


def record(message: str = "drained", error: Exception | None = None, **values: object) -> logging.LogRecord:
    exc_info = (type(error), error, None) if error is not None else None
    made = logging.LogRecord("firsttoken_sidecar.drain", logging.INFO, __file__, 1, message, (), exc_info)
    made.created, made.msecs = 0.25, 250.0
    vars(made).update(logs.fields(**values) if values else {})
    return made


def test_text_lines_have_fields() -> None:
    line = logs.TextFormatter().format(record(open=0, reason="two words", empty=""))
    assert line == '1970-01-01T00:00:00.250Z INFO sidecar.drain drained open=0 reason="two words" empty=""'


def test_json_lines_parse() -> None:
    line = json.loads(json_log.JsonFormatter().format(record(open=0, error=ValueError("x"))))
    assert line.pop("exception").startswith("ValueError")
    assert line == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "info",
        "logger": "sidecar.drain",
        "message": "drained",
        "open": 0,
    }


def test_a_repeated_warning_is_swallowed_and_its_number_told(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    limited = logs.Limited(logging.getLogger("test"), lambda: now)
    for second in (0, 1, 2, 29, 31, 32):
        now = float(second)
        limited.warning("no engine", at=second)
    limited.warning("another kind")
    told = [(r.getMessage(), getattr(r, "fields", {})) for r in caplog.records]
    assert told == [
        ("no engine", {"at": 0}),
        ("no engine", {"at": 31, "repeats_not_logged": 3}),
        ("another kind", {}),
    ]


def test_configure_sets_level_and_form(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("warning", "json")
        logging.getLogger("firsttoken_sidecar.x").info("quiet")
        logging.getLogger("firsttoken_sidecar.x").warning("loud")
        assert json.loads(capsys.readouterr().err)["message"] == "loud"
    finally:
        root.handlers[:], root.level = handlers, level
        logging.getLogger(logs.PACKAGE).setLevel(logging.NOTSET)
