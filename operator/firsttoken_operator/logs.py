"""Log lines as text or as one JSON object each. Bodies of API objects are never logged."""

import logging
import sys

from firsttoken_api import json_log
from firsttoken_operator import settings


def configure(level: str, form: settings.LogFormat) -> None:
    """One handler on standard error for everything; kopf and the client only from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        json_log.JsonFormatter()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("kopf", "aiohttp", "kubernetes", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)
