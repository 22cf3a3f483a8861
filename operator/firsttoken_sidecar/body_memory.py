"""The memory for bodies that are read whole: one bound for all of them together.

A body takes what it needs as it comes and gives it back when its answer begins. When nothing is left the
next one waits its turn, for a bounded time, so that two half-read bodies never wait for each other for ever.
"""

import asyncio
from collections import deque

from firsttoken_api import errors

BODIES_BYTES = 16 * 1024 * 1024
WAIT_S = 10.0


class BodyMemory:
    """What is left of the bound."""

    def __init__(self, limit_bytes: int = BODIES_BYTES) -> None:
        self.left_bytes = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int) -> None:
        """Waits in order of arrival. Raises errors.OverloadedError when it takes too long."""
        if not self._waiting and size_bytes <= self.left_bytes:
            self.left_bytes -= size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size_bytes)
            else:
                turn.cancel()
                self._hand_out()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise errors.OverloadedError("Too many large requests at once; retry in a moment.") from error

    def give_back(self, size_bytes: int) -> None:
        self.left_bytes += size_bytes
        self._hand_out()

    def lease(self) -> "Lease":
        return Lease(self)

    def _hand_out(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if not turn.done():
                if size_bytes > self.left_bytes:
                    return
                self.left_bytes -= size_bytes
                turn.set_result(None)
            self._waiting.popleft()


class Lease:
    """What one body has taken."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.taken_bytes = 0

    async def take(self, size_bytes: int) -> None:
        await self._memory.take(size_bytes)
        self.taken_bytes += size_bytes

    def release(self) -> None:
        """Gives all of it back; a second time nothing."""
        taken_bytes, self.taken_bytes = self.taken_bytes, 0
        if taken_bytes:
            self._memory.give_back(taken_bytes)
