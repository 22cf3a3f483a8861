"""Where an engine listens: on a loopback port, or on a Unix socket in a shared folder.

A Unix socket is written `unix:/path`; HTTP over it names a host that nobody resolves.
"""

import aiohttp
from yarl import URL

UNIX = "unix"
_NOBODY = URL("http://engine")


def is_unix(url: URL) -> bool:
    return url.scheme == UNIX


def connector(url: URL, *, keepalive_s: float = 15.0) -> aiohttp.BaseConnector:
    """Connects to that engine, as often as asked to."""
    if is_unix(url):
        return aiohttp.UnixConnector(url.path, limit=0, keepalive_timeout=keepalive_s)
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=keepalive_s)


def origin(url: URL) -> URL:
    """What requests over that connector name."""
    return _NOBODY if is_unix(url) else url.origin()
