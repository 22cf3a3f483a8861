"""The header with which one sidecar sends a request on to another: `1;age_ms=<since it first arrived>`. Pure.

A duration and no point in time, since the two machines' clocks differ. That it comes from a peer at all is
judged by the address it comes from; what it says is read here, and is never taken on trust further than a
client's own waiting could go.
"""

import re

OLDEST_S = 3600.0
_FORM = re.compile(r"1;age_ms=([0-9]{1,10})", re.ASCII)


def value(age_s: float) -> str:
    """The header of a request that first arrived so long ago."""
    return f"1;age_ms={round(min(max(age_s, 0.0), OLDEST_S) * 1000)}"


def age_s(header: str) -> float | None:
    """How long ago the request first arrived; None when the header is not of our form."""
    match = _FORM.fullmatch(header.strip())
    if match is None:
        return None
    age = int(match.group(1)) / 1000
    return age if age <= OLDEST_S else None
