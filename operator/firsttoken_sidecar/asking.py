"""One question to an engine over HTTP: every way to get no answer is one error."""

from collections.abc import Mapping

import aiohttp
from pydantic import ValidationError
from yarl import URL

from firsttoken_sidecar.engines import EngineUnreachableError

LONGEST_REASON = 500


class EngineRefusedConnectionError(EngineUnreachableError):
    """Nobody listens on the engine's port."""


async def ask(
    session: aiohttp.ClientSession,
    method: str,
    url: URL,
    timeout_s: float,
    document: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and body of the answer. Raises EngineUnreachableError."""
    typed = {"Content-Type": "application/json"} if document is not None else {}
    try:
        async with session.request(
            method,
            url,
            data=document,
            headers={**typed, **(headers or {})},
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            return response.status, await response.read()
    except (aiohttp.ClientError, OSError) as error:
        reason = str(error) or type(error).__name__
        is_refused = isinstance(getattr(error, "os_error", error), ConnectionRefusedError)
        kind = EngineRefusedConnectionError if is_refused else EngineUnreachableError
        raise kind(f"{method} {url.path} of the engine: {reason}") from error


def first_line(error: ValidationError) -> str:
    """Where a document is wrong, and how."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"
