"""Whom a request is from, as far as its API key tells. Pure; `auth` finds out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """The holder of one API key."""

    name: str
    """Of the key; empty when nobody is asked for one."""
    tenant: str
    """Value of the tenant header towards the engine; empty: no such header, all callers are one tenant."""
    max_class: str = ""
    """The most urgent class that the key may use; empty: any."""
    weight: int = 1
    """Share of the tenant where tenants compete."""
    requests_per_minute: int | None = None
    """None: no limit."""
    tokens_per_minute: int | None = None


ANONYMOUS = Caller(name="", tenant="")
"""Everybody, where the service asks for no keys."""
