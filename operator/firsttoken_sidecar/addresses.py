"""Which addresses the replicas have: the names of `PEERS_HOST`, resolved again and again.

The headless Service lists the replicas that are ready. A list of names or addresses does as well, so that
sidecars can be peers without a cluster. The system's resolver may hang for as long as it likes: it is not
asked again before it has answered, and no request waits for it.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

LOOKUP_LIMIT_S = 5.0
PROBE_PORT = 9
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Resolve = Callable[[str], Awaitable[frozenset[str]]]


class LookupFailedError(Exception):
    """Nobody says which addresses a name has."""


async def resolve(name: str) -> frozenset[str]:
    """All addresses of one name, none if it has none: so it is while no replica is ready.

    Raises LookupFailedError when nobody says.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return frozenset()
        raise LookupFailedError(f"{name}: {error}") from error
    except (OSError, UnicodeError) as error:
        raise LookupFailedError(f"{name}: {error}") from error
    return frozenset(normalized(str(address[0])) for *_, address in found)


def normalized(address: str) -> str:
    """One spelling for each address: an IPv4 client of a dual-stack socket is that IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def specific(host: str | None) -> str | None:
    """The host if it is the address of one place; None for a name, and for all addresses."""
    try:
        parsed = ipaddress.ip_address(host or "")
    except ValueError:
        return None
    return None if parsed.is_unspecified else normalized(str(parsed))


def is_own(address: str) -> bool:
    """Whether this machine would speak to the address from that same address. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, PROBE_PORT))
            return normalized(str(probe.getsockname()[0])) == address
    except OSError:
        return False


class Lookup:
    """One name, with what was last said of it."""

    def __init__(self, name: str, resolver: Resolve = resolve) -> None:
        self._name = name
        self._resolve = resolver
        self._pending: asyncio.Task[frozenset[str]] | None = None

    async def again(self) -> frozenset[str]:
        """The addresses now. Raises LookupFailedError, within `LOOKUP_LIMIT_S`."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._resolve(self._name))
        done, _ = await asyncio.wait([self._pending], timeout=LOOKUP_LIMIT_S)
        if not done:
            raise LookupFailedError(f"{self._name}: no answer for {LOOKUP_LIMIT_S:g} s")
        task, self._pending = self._pending, None
        return task.result()

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait([self._pending])
