"""Who may find whose cached KV: the tenant of a request, and the salt of its cache keys.

A tenant is named by a sidecar, in a header that it strips from clients. This server believes the header only
where it stands behind one (`--behind-sidecar`, or the flags document that pods have) and only from its own
machine, which in a pod is the sidecar; anywhere else a client could name another tenant and learn by timing
what that one asked.
"""

import hashlib
import ipaddress
import logging
import re

import msgspec
from aiohttp import web

from firsttoken_api import errors, names

log = logging.getLogger(__name__)

TENANT = re.compile(r"[\x21-\x7e]{1,128}")
NOBODY = ""
"""The tenant of requests that name none: all of them together."""


def salt(tenant: str, cache_salt: str | None) -> str:
    """ "" for a request without both: such requests share. Of two different pairs never the same."""
    if tenant == NOBODY and cache_salt is None:
        return ""
    return hashlib.sha256(msgspec.json.encode([tenant, cache_salt])).hexdigest()


class Tenants:
    """`is_believed`: whether requests come from a sidecar."""

    def __init__(self, *, is_believed: bool = False) -> None:
        self._is_believed = is_believed
        self._has_warned = False

    def of(self, request: web.Request) -> str:
        """The tenant, NOBODY where none is named or the header is not believed. Raises BadRequestError."""
        given = request.headers.getall(names.HEADER_TENANT, [])
        if not given:
            return NOBODY
        if not (self._is_believed and is_this_machine(request.remote)):
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "a request has the header %s, which only sidecars may set; it is ignored",
                    names.HEADER_TENANT,
                )
            return NOBODY
        if len(given) > 1 or not TENANT.fullmatch(given[0]):
            raise errors.BadRequestError(
                f"{names.HEADER_TENANT} is not one name of 1 to 128 visible ASCII characters",
                param=names.HEADER_TENANT,
            )
        return given[0]

    def client(self, request: web.Request) -> str:
        """Whom to hold accountable for what a request costs: its tenant, else the address it comes from."""
        return self.of(request) or f"address {request.remote}"


def is_this_machine(address: str | None) -> bool:
    try:
        return ipaddress.ip_address(address or "").is_loopback
    except ValueError:  # a Unix socket has no address
        return False
