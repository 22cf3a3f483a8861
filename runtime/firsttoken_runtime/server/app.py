"""The two aiohttp applications of the server process, and their listening sockets.

With an ops port the API is alone on its port and everything else is on the other one (in a pod both are
on loopback). Without one the reads of the ops endpoints are on the API port; the write is nowhere.
"""

import asyncio
import errno
import os
import socket
from dataclasses import dataclass

from aiohttp import web

from firsttoken_runtime.server import connection_errors, http
from firsttoken_runtime.server.api import Api
from firsttoken_runtime.server.ops import Ops
from firsttoken_runtime.server.service import Service

SHUTDOWN_TIMEOUT_S = 10.0


class AddressError(Exception):
    """The address to listen on does not exist."""


class PortTakenError(Exception):
    """A listening socket could not be opened; `port` says which."""

    def __init__(self, port: int, message: str) -> None:
        super().__init__(message)
        self.port = port


def api_application(service: Service, *, with_ops: bool) -> web.Application:
    app = http.application()
    Api(service).add_to(app)
    if with_ops:
        Ops(service).add_reads_to(app)
    return app


def ops_application(service: Service) -> web.Application:
    app = http.application()
    Ops(service).add_reads_to(app)
    Ops(service).add_writes_to(app)
    return app


@dataclass(frozen=True)
class Listener:
    """A bound application."""

    runner: web.AppRunner
    port: int
    sweep: asyncio.Task[None]
    """Closes idle connections."""

    async def close(self) -> None:
        """Stop accepting, let open requests end for a while, then cancel them."""
        self.sweep.cancel()
        await asyncio.gather(self.sweep, return_exceptions=True)
        await self.runner.cleanup()


async def listen(app: web.Application, host: str, port: int) -> Listener:
    """Bind and serve. Raises AddressError or PortTakenError; port 0 takes a free one."""
    runner = connection_errors.Runner(app, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise AddressError(f"{host} is not an address of this machine") from error
        why = os.strerror(error.errno) if error.errno else str(error)
        raise PortTakenError(port, f"cannot listen on {host}:{port}: {why.lower()}") from error
    assert runner.server is not None
    sweep = asyncio.create_task(app[http.CONNECTIONS].keep_closing(runner.server), name="idle-connections")
    return Listener(runner, runner.addresses[0][1], sweep)
