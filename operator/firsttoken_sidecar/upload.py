"""A client's body: read whole where it is small, else streamed; bounded in size and in slowness."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from firsttoken_api import errors
from firsttoken_sidecar import body_memory

SILENCE_S = 30.0
"""How long a client may pause inside its body. The HTTP library's fast parser reports a malformed chunk to
nobody, it just sends no more; so this ends those uploads too."""
SLOW_AFTER_S = 30.0
LEAST_BYTES_PER_S = 1024
"""A body that was waited for longer than `SLOW_AFTER_S` has come at least this fast. Back-pressure of ours
does not count: only the time in which there was nothing to read."""


class Upload:
    """One body; remembers why it broke off."""

    def __init__(self, request: web.Request, limit_bytes: int) -> None:
        self._request = request
        self._limit_bytes = limit_bytes
        self.read_bytes = 0
        """So many have come."""
        self._waited_s = 0.0
        self._beginning: list[bytes] = []
        self.is_started = False
        """Some of it was passed on, so it cannot be sent again."""
        self.fault: errors.ApiError | None = None
        """Why the client's body cannot be passed on; None while it can."""
        if (request.content_length or 0) > limit_bytes:
            self.fault = self._too_large()

    async def read(self, most_bytes: int, lease: body_memory.Lease) -> bytes | None:
        """The whole body, which the lease then holds; None when it is larger than `most_bytes`.

        What was read of a larger one comes first in `chunks`. Raises the fault, and errors.OverloadedError.
        """
        if (self._request.content_length or 0) > most_bytes:
            return None
        while chunk := await self._next():
            self._beginning.append(chunk)
            await lease.take(len(chunk))
            if self.read_bytes > most_bytes:
                return None
        # Not kept here: the body is given up when it has been sent, and the upload is not.
        pieces, self._beginning = self._beginning, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises the fault."""
        self.is_started = True
        while self._beginning:
            yield self._beginning.pop(0)
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        content = self._request.content
        clock = asyncio.get_running_loop().time
        since_s = clock()
        try:
            # Most bodies are there with their head.
            if not (chunk := content.read_nowait()) and not content.at_eof():
                async with asyncio.timeout(SILENCE_S):
                    chunk = await content.readany()
        except TimeoutError as error:
            self.fault = errors.RequestTimeoutError(f"No more of the body came for {SILENCE_S:g} s.")
            raise self.fault from error
        except web.RequestPayloadError as error:
            self.fault = errors.BadRequestError("The request body is not well-formed HTTP.")
            raise self.fault from error
        self._waited_s += clock() - since_s
        self.read_bytes += len(chunk)
        if self.read_bytes > self._limit_bytes:
            self.fault = self._too_large()
        elif self._waited_s > SLOW_AFTER_S and self.read_bytes < self._waited_s * LEAST_BYTES_PER_S:
            self.fault = errors.RequestTimeoutError(
                f"The body came slower than {LEAST_BYTES_PER_S} bytes a second."
            )
        if self.fault is not None:
            raise self.fault
        return chunk

    def _too_large(self) -> errors.ApiError:
        return errors.RequestTooLargeError(f"The request body is larger than {self._limit_bytes} bytes.")
