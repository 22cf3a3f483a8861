"""One answer that several clients read, each from its start and at its own pace.

It belongs to none of them: it goes on while one reader is left, and is given up with the last. The engine
is read only a little ahead of the fastest reader, so back-pressure still holds.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from firsttoken_api import errors
from firsttoken_sidecar import admission, answers, exchange, stopwatch

REPLAY_BYTES = 1024 * 1024
"""What has grown past this is not joined any more, and a reader that lags so far behind is left behind."""
ALL_REPLAY_BYTES = 16 * 1024 * 1024
"""For all computations together. What finds no place in it is not joined any more either."""
AHEAD_BYTES = 64 * 1024
"""How far the engine is read ahead of the fastest reader."""

Opening = Callable[[Callable[[], None]], Awaitable[exchange.Exchange]]
"""Sends the request, and calls what it is given when it does. Raises errors.ApiError."""
Watching = Callable[[exchange.Exchange], stopwatch.Stopwatch]
"""Watches what the engine answers."""


class ReplayMemory:
    """What is left for answers that can still be joined."""

    def __init__(self, limit_bytes: int = ALL_REPLAY_BYTES) -> None:
        self.left_bytes = limit_bytes


class Computation:
    """One request that is computed for all of its readers."""

    def __init__(
        self,
        opening: Opening,
        watching: Watching,
        memory: ReplayMemory,
        on_closed: Callable[[], None],
    ) -> None:
        """on_closed: called once, when nobody may join any more."""
        self._opening = opening
        self._watching = watching
        self._memory = memory
        self._on_closed = on_closed
        self._is_joinable = True
        self._chunks: deque[bytes] = deque()
        self._dropped_chunks = 0
        self._total_bytes = 0
        self._kept_bytes = 0
        self._readers: dict[Reader, None] = {}
        self._changed = _Signal()
        self._was_read = _Signal()
        self._is_sent = False
        self.task: asyncio.Task[None] | None = None
        self.head: exchange.Exchange | None = None
        self.error: Exception | None = None
        self.is_over = False

    def join(self, on_sent: Callable[[], None]) -> "Reader":
        """One more reader. `on_sent` is called when the request is sent, at once if it was."""
        reader = Reader(self, on_sent)
        self._readers[reader] = None
        if self._is_sent:
            on_sent()
        return reader

    async def run(self) -> None:
        """Until the answer is complete, has failed, or everybody left."""
        try:
            self.head = await self._opening(self._note_sent)
            watched = self._watching(self.head)
            self._changed.send()
            while chunk := await self.head.read():
                watched.feed(chunk)
                watched.written()
                self._keep(chunk)
                while self._ahead_bytes() > AHEAD_BYTES:
                    await self._was_read.wait()
            watched.ended()
            self.head.ended(watched.stamps)
            self.is_over = True
        except (errors.ApiError, answers.BrokenOffError) as error:
            self.error = error
        finally:
            if self.head is not None:
                self.head.close()
            if not self.is_over and self.error is None:
                self.error = answers.BrokenOffError("given up")
            self._close()
            self._changed.send()

    def left(self, reader: "Reader") -> None:
        del self._readers[reader]
        self._was_read.send()
        if not self._readers:
            self._close()
            if self.task is not None:
                self.task.cancel()

    async def changed(self) -> None:
        """Waits for news."""
        await self._changed.wait()

    def chunk(self, index: int) -> bytes | None:
        """The chunk of that number; None: not there yet. Raises BrokenOffError for one that was let go."""
        if index < self._dropped_chunks:
            raise answers.BrokenOffError("this reader is too slow for the others")
        at = index - self._dropped_chunks
        return self._chunks[at] if at < len(self._chunks) else None

    def was_read(self) -> None:
        self._drop()
        self._was_read.send()

    def _note_sent(self) -> None:
        self._is_sent = True
        for reader in self._readers:
            reader.on_sent()

    def _keep(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._total_bytes += len(chunk)
        self._kept_bytes += len(chunk)
        if self._is_joinable:
            self._memory.left_bytes -= len(chunk)
            if self._total_bytes > REPLAY_BYTES or self._memory.left_bytes < 0:
                self._close()
        self._drop()
        self._changed.send()

    def _close(self) -> None:
        """Nobody joins any more."""
        if self._is_joinable:
            self._is_joinable = False
            self._memory.left_bytes += self._kept_bytes
            self._on_closed()

    def _drop(self) -> None:
        """Lets go of what nobody needs, and of what a slow reader needs when it is too much."""
        if self._is_joinable:
            return
        needed = min((reader.index for reader in self._readers), default=self._dropped_chunks)
        while self._chunks and (
            self._dropped_chunks < needed or self._kept_bytes > REPLAY_BYTES + AHEAD_BYTES
        ):
            self._kept_bytes -= len(self._chunks.popleft())
            self._dropped_chunks += 1

    def _ahead_bytes(self) -> int:
        return self._total_bytes - max((reader.read_bytes for reader in self._readers), default=0)


class Reader:
    """One client's view: an `answers.Answer` once it has started. Leave, whatever happened."""

    def __init__(self, of: Computation, on_sent: Callable[[], None]) -> None:
        self._of = of
        self.on_sent = on_sent
        self.index = 0
        """Of the chunk to read next."""
        self.read_bytes = 0

    async def started(self) -> None:
        """Waits for the head of the answer. Raises errors.ApiError."""
        while self._of.head is None:
            if isinstance(self._of.error, errors.ApiError):
                raise self._of.error
            if self._of.error is not None:
                raise errors.InternalError("The sidecar made a mistake; its log has the rest.")
            await self._of.changed()

    @property
    def estimate(self) -> admission.Estimate | None:
        return self._head.estimate

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def reason(self) -> str | None:
        return self._head.reason

    @property
    def headers(self) -> Mapping[str, str]:
        return self._head.headers

    async def read(self) -> bytes:
        while (chunk := self._of.chunk(self.index)) is None:
            if self._of.is_over:
                return b""
            if self._of.error is not None:
                raise answers.BrokenOffError(str(self._of.error))
            await self._of.changed()
        self.index += 1
        self.read_bytes += len(chunk)
        self._of.was_read()
        return chunk

    def leave(self) -> None:
        self._of.left(self)

    @property
    def _head(self) -> exchange.Exchange:
        assert self._of.head is not None, "wait until it has started"
        return self._of.head


class _Signal:
    """Wakes everybody who waits at that moment."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn
