"""Sends a request to the engine of this pod, waiting a little for one that is not there yet.

Nothing is buffered beyond the HTTP library's stream limits (64 KiB a direction). A client that leaves
cancels this, and that closes the connection to the engine, which is how the engine learns of it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from firsttoken_api import errors
from firsttoken_sidecar import answers, engine_address, logs, metrics, upload

CONNECT_TIMEOUT_S = 15.0
"""The engine is on this machine: it takes a connection or refuses it at once. What lasts longer is a machine
so busy that this process does not get to see it, and that is no reason to turn a request away."""
ENGINE_WAIT_S = 2.0
"""How long a request waits for an engine that takes no connection, before it is told to retry."""
RETRY_EVERY_S = 0.1
POOL_KEEPALIVE_S = 15.0
"""Shorter than any engine's own limit, so that a pooled connection is not closed under a request."""

READ_BYTES = 64 * 1024
"""Of an answer, that a connection holds before the engine is told to wait."""

_SKIPPED_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

logger = logging.getLogger(__name__)


def session(engine_url: URL) -> aiohttp.ClientSession:
    """A session that adds, keeps and decodes nothing, and opens as many connections as there are requests."""
    return aiohttp.ClientSession(
        connector=engine_address.connector(engine_url, keepalive_s=POOL_KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIPPED_AUTOMATIC,
        auto_decompress=False,
        read_bufsize=READ_BYTES,
    )


@dataclass(frozen=True)
class Outgoing:
    """A request as it goes on."""

    method: str
    target: URL
    """Path and query, as the client wrote them."""
    headers: CIMultiDict[str]
    body: bytes | upload.Upload | None
    """None: there is none."""


class Proxy:
    """The way to one engine."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        api_url: URL,
        counts: metrics.Counts,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._origin = engine_address.origin(api_url)
        self._counts = counts
        self._clock = clock
        self._limited = logs.Limited(logger)

    async def send(self, outgoing: Outgoing) -> answers.Upstream:
        """The answer, when its head has come. Raises errors.ApiError."""
        target = outgoing.target
        url = URL.build(
            scheme="http",
            host=self._origin.host or "",
            port=self._origin.port,
            path=target.raw_path,
            query_string=target.raw_query_string,
            encoded=True,
        )
        body = outgoing.body
        deadline = self._clock() + ENGINE_WAIT_S
        while True:
            try:
                response = await self._client.request(
                    outgoing.method,
                    url,
                    headers=outgoing.headers,
                    data=body.chunks() if isinstance(body, upload.Upload) else body,
                    allow_redirects=False,
                )
                return answers.Upstream(response)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                is_started = isinstance(body, upload.Upload) and body.is_started
                if is_started or self._clock() >= deadline:
                    raise self._not_there(error) from error
            except (aiohttp.ClientError, OSError) as error:
                if isinstance(body, upload.Upload) and body.fault is not None:
                    raise body.fault from error
                raise self.broke_off(error) from error
            await asyncio.sleep(RETRY_EVERY_S)

    def broke_off(self, error: Exception) -> errors.ApiError:
        """For whoever finds that the answer has ended before it began."""
        self._counts.engine_errors[metrics.EngineErrorReason.BEFORE_ANSWER] += 1
        self._limited.warning("engine broke off before its answer", error=type(error).__name__)
        return errors.EngineUnreachableError("The engine broke off before it answered.")

    def _not_there(self, error: Exception) -> errors.ApiError:
        self._counts.engine_errors[metrics.EngineErrorReason.NOT_THERE] += 1
        self._limited.warning("engine takes no connection", error=str(error))
        return errors.UnavailableError("The engine is not answering yet; retry in a moment.")
