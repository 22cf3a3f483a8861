"""A client's body on its way to the engine: streamed, bounded in size and in silence."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from firsttoken_api import errors

SILENCE_S = 30.0
"""How long a client may pause inside its body. The HTTP library's fast parser reports a malformed chunk to
nobody, it just sends no more; so this ends those uploads too."""


class Upload:
    """One body; remembers why it broke off."""

    def __init__(self, request: web.Request, limit_bytes: int) -> None:
        self._request = request
        self._limit_bytes = limit_bytes
        self._sent_bytes = 0
        self.is_started = False
        self.fault: errors.ApiError | None = None
        """Why the client's body cannot be passed on; None while it can."""
        if (request.content_length or 0) > limit_bytes:
            self.fault = self._too_large()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises the fault."""
        self.is_started = True
        while chunk := await self._next():
            self._sent_bytes += len(chunk)
            if self._sent_bytes > self._limit_bytes:
                self.fault = self._too_large()
                raise self.fault
            yield chunk

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(SILENCE_S):
                return await self._request.content.readany()
        except TimeoutError as error:
            self.fault = errors.RequestTimeoutError(f"No more of the body came for {SILENCE_S:g} s.")
            raise self.fault from error
        except web.RequestPayloadError as error:
            self.fault = errors.BadRequestError("The request body is not well-formed HTTP.")
            raise self.fault from error

    def _too_large(self) -> errors.ApiError:
        return errors.RequestTooLargeError(f"The request body is larger than {self._limit_bytes} bytes.")
