"""Who asks: the caller behind the API key of a request, from a mounted file that may change at any time.

A file that does not parse keeps the last good one in force, and `error` says which entry is wrong. As long as
there was no good one nobody is let in: an operator that asked for keys does not want everybody instead.
Neither a key nor a header value ever reaches a log line or a message.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """Whom a request is from, as far as an API key tells."""

    name: str
    """Name of the key; empty when nobody is asked for one."""
    tenant: str
    """Value of the tenant header towards the engine; empty: no such header, all callers are one tenant."""
    max_class: str = ""
    """The most urgent class that the key may use; empty: any."""
    weight: int = 1
    """Share of the tenant where tenants compete."""


ANONYMOUS = Caller(name="", tenant="")
"""Everybody, where the service asks for no keys."""
