"""The engine as the server's child: the process, its standard input and the two sockets to it.

The sockets are bound before the process starts. What its messages mean and when its silence is a hang are
decided elsewhere (`engine_client`, `engine_watch`).
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_runtime import core
from firsttoken_runtime.server import engine_entry

log = logging.getLogger(__name__)

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824"}
"""Every token reads all weights. In huge pages, and so in one heap, a CPU finds them faster: the linears of
SmolLM2's decode step took about a tenth less. The C library reads this when a process starts; one that does
not know it goes on without. It costs about 100 MiB of resident memory."""


class EngineChild:
    """One engine process, from `start`. `end` it, then `close` what it leaves."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        folder: Path,
        context: zmq.asyncio.Context,
        inbox: zmq.asyncio.Socket,
        outbox: "zmq.Socket[bytes]",
    ) -> None:
        self._process = process
        self._folder = folder
        self._context = context
        self._inbox = inbox
        self._outbox = outbox
        self._decoder = msgspec.msgpack.Decoder(core.FromEngine)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: core.ToEngine) -> None:
        """Never waits: there is no high-water mark. Raises UnavailableError when no engine is connected."""
        try:
            self._outbox.send(msgspec.msgpack.encode(message), zmq.NOBLOCK)
        except zmq.Again as error:
            raise errors.UnavailableError("the engine is gone") from error

    async def receive(self) -> core.FromEngine:
        message: core.FromEngine = self._decoder.decode(await self._inbox.recv())
        return message

    async def wait(self) -> int:
        """The exit code, when there is one."""
        return await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self, grace_s: float) -> None:
        """In order if it does so within `grace_s`, else by force."""
        with suppress(errors.UnavailableError):
            self.send(core.Shutdown())
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wait(), grace_s)
        if self._process.returncode is None:
            if grace_s:
                log.warning("the engine did not end in %.0f s and is killed", grace_s)
            self.kill()
            await self.wait()

    async def close(self) -> None:
        """Free pipe, sockets and folder. Nobody may be in `receive` any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._process.stdin.wait_closed()
        self._inbox.close(linger=0)
        self._outbox.close(linger=0)
        self._context.term()
        shutil.rmtree(self._folder)


def _environment() -> dict[str, str]:
    path = os.pathsep.join(path for path in sys.path if path)
    return HUGE_PAGES | os.environ | {"PYTHONPATH": path}


async def start(
    module: str, settings: core.EngineSettings, initial: HotSettings | None, log_format: str
) -> EngineChild:
    folder = Path(tempfile.mkdtemp(prefix="firsttoken-"))
    to_engine, from_engine = (f"ipc://{folder}/{name}.sock" for name in ("to", "from"))
    context = zmq.asyncio.Context()
    inbox = context.socket(zmq.PULL)
    inbox.set_hwm(0)
    inbox.bind(from_engine)
    outbox: zmq.Socket[bytes] = zmq.Context.shadow(context.underlying).socket(zmq.PUSH)
    outbox.set_hwm(0)
    outbox.bind(to_engine)
    launch = engine_entry.Launch(
        module=module,
        settings=settings,
        initial_settings_json=initial.model_dump_json().encode() if initial else None,
        log_format=log_format,
        to_engine_address=to_engine,
        from_engine_address=from_engine,
    )
    # A session of its own: Ctrl-C in the terminal reaches the server only.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", engine_entry.__name__),
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(launch) + b"\n")
    return EngineChild(process, folder, context, inbox, outbox)
