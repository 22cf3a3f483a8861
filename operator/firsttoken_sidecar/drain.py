"""Takes this pod out of service without cutting a stream.

A native sidecar is told to stop only after the engine has exited, so the engine container's preStop asks
for the drain over a Unix socket in a shared folder and waits for the answer. In order: not ready any
more, every answer says `Connection: close`; after the deregister delay (routes have forgotten the pod)
new requests get 503 and idle connections are closed; when the last stream has ended, or the timeout has
passed, the drain is done. The socket is never on the pod's IP.

Protocol: the client sends `drain`, and reads until the end; the answer is `drained`.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from firsttoken_sidecar import logs

REQUEST = b"drain"
ANSWER = b"drained\n"
LONGEST_REQUEST_BYTES = 64
SOCKET_MODE = 0o660
"""Both containers run as the same user; a group may be shared through fsGroup."""

logger = logging.getLogger(__name__)


class Stage(IntEnum):
    """How far a drain has come."""

    SERVING = 0
    DEREGISTERING = 1
    REFUSING = 2
    DRAINED = 3


class OpenRequests:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self.count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if self.count == 0:
            self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()


class Drain:
    """The drain of one engine. `on_refusing` is called when new requests are refused.

    preStop also runs when the kubelet restarts the engine's container alone, for a failed liveness probe.
    Then the pod stays, another engine comes up in it, and `resume` ends the drain: without it the pod would
    never serve again.
    """

    def __init__(
        self,
        deregister_delay_s: float,
        timeout_s: float,
        open_requests: OpenRequests,
        on_refusing: Callable[[], None] = lambda: None,
    ) -> None:
        self._deregister_delay_s = deregister_delay_s
        self._timeout_s = timeout_s
        self._open_requests = open_requests
        self._on_refusing = on_refusing
        self._task: asyncio.Task[None] | None = None
        self.stage = Stage.SERVING

    @property
    def is_draining(self) -> bool:
        return self.stage is not Stage.SERVING

    @property
    def is_refusing(self) -> bool:
        return self.stage >= Stage.REFUSING

    async def drained(self) -> None:
        """Starts the drain unless it runs; returns when it is done. A waiter that leaves stops nothing."""
        if self._task is None:
            self.stage = Stage.DEREGISTERING
            self._task = asyncio.create_task(self._run(), name="drain")
        await asyncio.shield(self._task)

    def resume(self) -> None:
        """Another engine loads its model: serve again, if the drain of the one before is done."""
        if self.stage is Stage.DRAINED:
            self.stage = Stage.SERVING
            self._task = None
            logger.info("another engine starts in this pod: no longer draining")

    async def _run(self) -> None:
        logger.info(
            "draining",
            extra=logs.fields(deregister_delay_s=self._deregister_delay_s, open=self._open_requests.count),
        )
        await asyncio.sleep(self._deregister_delay_s)
        self.stage = Stage.REFUSING
        self._on_refusing()
        logger.info(
            "new requests are refused",
            extra=logs.fields(open=self._open_requests.count, timeout_s=self._timeout_s),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open_requests.wait_idle()
        except TimeoutError:
            logger.warning(
                "drain timeout passed, open requests will be cut",
                extra=logs.fields(open=self._open_requests.count, timeout_s=self._timeout_s),
            )
        self.stage = Stage.DRAINED
        logger.info("drained", extra=logs.fields(open=self._open_requests.count))


class DrainSocket:
    """The Unix socket on which the engine's preStop asks. A context manager."""

    def __init__(self, path: Path, drain: Drain) -> None:
        self._path = path
        self._drain = drain
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        # A socket that an earlier life of this container left behind is replaced.
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._path.chmod(SOCKET_MODE)

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if await self._has_asked(reader):
                await self._drain.drained()
                writer.write(ANSWER)
            else:
                writer.write(b"unknown request, send: drain\n")
            await writer.drain()
        except ConnectionError:
            logger.info("the client of the drain socket left")
        except asyncio.CancelledError:
            # Only from __aexit__, at the end of the process; asyncio's streams would report it as an error.
            logger.debug("a client of the drain socket was left without an answer")
        finally:
            self._clients.discard(task)
            writer.close()

    async def _has_asked(self, reader: asyncio.StreamReader) -> bool:
        request = b""
        while len(request) < LONGEST_REQUEST_BYTES and request.strip() != REQUEST and b"\n" not in request:
            more = await reader.read(LONGEST_REQUEST_BYTES)
            if not more:
                break
            request += more
        return request.strip() == REQUEST
