"""One listening HTTP server: the settings that traffic and ops share."""

import logging
from dataclasses import dataclass

from aiohttp import web

from firsttoken_sidecar import connections, logs

SHUTDOWN_S = 1.0
"""For handlers that are still at work when the process ends; a drain has long waited for streams."""
READ_BYTES = 64 * 1024
"""Of a body, that a connection holds before its client is told to wait."""
LINGERING_S = 2.0
"""How long the rest of a refused body is read, so that the client gets to see the refusal."""


@dataclass(frozen=True)
class Server:
    """A running server. Close it with `close`."""

    runner: connections.Runner
    port: int
    connections: connections.Connections

    async def close(self) -> None:
        await self.runner.cleanup()


async def start(
    application: web.Application, name: str, host: str | None, port: int, watched: connections.Connections
) -> Server:
    """Listens on `port` (0: any free one) of `host` (None: all addresses)."""
    runner = connections.Runner(
        application,
        watched,
        access_log=None,
        logger=logging.getLogger(f"{logs.PACKAGE}.{name}"),
        # A client that leaves cancels its handler.
        handler_cancellation=True,
        # Bodies go on as they came, compressed ones too.
        auto_decompress=False,
        lingering_time=LINGERING_S,
        read_bufsize=READ_BYTES,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return Server(runner, runner.addresses[0][1], watched)
