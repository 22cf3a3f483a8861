"""W3C trace context: read for exemplars, and begun where tracing is on and the client has none.

What a client sends passes on unchanged, so its trace goes through us. The engine makes the spans.
"""

import re
import secrets
from collections.abc import Mapping, MutableMapping

HEADER = "traceparent"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


def sampled_trace_id(headers: Mapping[str, str]) -> str:
    """Of a request whose trace is recorded; empty for any other, and for what is not of the form."""
    match = _FORM.fullmatch(headers.get(HEADER, "").strip())
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return ""
    return match[1] if int(match[3], 16) & _SAMPLED else ""


def ensure(headers: MutableMapping[str, str], *, is_traced: bool) -> None:
    """Begins a trace, recorded, where tracing is on and the request belongs to none."""
    if is_traced and HEADER not in headers:
        headers[HEADER] = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
