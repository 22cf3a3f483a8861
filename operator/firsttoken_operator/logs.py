"""Log lines as text or as one JSON object each. Bodies of API objects are never logged."""

import json
import logging
import sys
from datetime import UTC, datetime

from firsttoken_operator import settings


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str, form: settings.LogFormat) -> None:
    """One handler on standard error for everything; kopf and the client only from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("kopf", "aiohttp", "kubernetes", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)
