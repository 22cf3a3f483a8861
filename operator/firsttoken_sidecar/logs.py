"""Log lines as text or JSON, with fields; warnings that repeat are limited.

No line ever carries a header value, a prompt or an answer: what is logged is counted, timed or named
by us. A fallback or a retry is said once, then at most every `EVERY_S` seconds with how many were
swallowed in between; the counters in `metrics` have them all.
"""

import json
import logging
import time
from collections.abc import Callable

from firsttoken_api import json_log

EVERY_S = 30.0
PACKAGE = "firsttoken_sidecar"


def fields(**values: object) -> dict[str, dict[str, object]]:
    """For `logger.info("what happened", extra=fields(count=3))`."""
    return {json_log.FIELDS: values}


class TextFormatter(logging.Formatter):
    """`2025-01-31T12:00:00.123Z INFO sidecar.drain drained open=0`."""

    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"{json_log.timestamp(record)} {record.levelname} {json_log.short_name(record)} "
            f"{record.getMessage()}"
        )
        values: dict[str, object] = getattr(record, json_log.FIELDS, {})
        line += "".join(f" {name}={_quoted(value)}" for name, value in values.items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class Limited:
    """A logger's warnings, each kind at most once in `EVERY_S`."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._next_at: dict[str, float] = {}
        self._swallowed: dict[str, int] = {}

    def warning(self, message: str, **values: object) -> None:
        """`message` is the kind: a constant sentence; what varies goes into `values`."""
        now = self._clock()
        if now < self._next_at.get(message, 0.0):
            self._swallowed[message] = self._swallowed.get(message, 0) + 1
            return
        swallowed = self._swallowed.pop(message, 0)
        self._next_at[message] = now + EVERY_S
        if swallowed:
            values["repeats_not_logged"] = swallowed
        self._logger.warning(message, extra=fields(**values))


def configure(level: str, log_format: str) -> None:
    """Sends our own and the libraries' lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(json_log.JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(level.upper())


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c.isspace() or c in '"=' for c in text) else text
