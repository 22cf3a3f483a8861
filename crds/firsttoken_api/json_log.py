"""Log lines as one JSON object each: one form from every process, so that a collector reads them all."""

import json
import logging
import time

FIELDS = "fields"
"""The attribute of a record that has fields of its own, by name."""


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, the record's fields, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": timestamp(record),
            "level": record.levelname.lower(),
            "logger": short_name(record),
            "message": record.getMessage(),
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def timestamp(record: logging.LogRecord) -> str:
    """`2025-01-31T12:00:00.123Z`."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def short_name(record: logging.LogRecord) -> str:
    """Of its logger: `sidecar.drain`."""
    return record.name.removeprefix("firsttoken_")
