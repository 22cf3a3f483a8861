"""An answer on its way from an engine or a peer to a client."""

from collections.abc import Mapping
from typing import Protocol

import aiohttp


class BrokenOffError(Exception):
    """Whoever answers failed in mid-answer."""


class Answer(Protocol):
    """An answer whose head has come."""

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises BrokenOffError."""
        ...


class Upstream:
    """One that comes over HTTP. Close it, whatever happened."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content
        self._first: bytes | None = None
        self._is_over = False
        self.status = response.status
        self.reason = response.reason
        self.headers: Mapping[str, str] = response.headers

    async def wait_for_first(self) -> None:
        """Until there is something to read: before that, the request can still be sent elsewhere.

        Raises BrokenOffError.
        """
        self._first = await self.read()

    async def read(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._is_over:
            return b""
        try:
            chunk = await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise BrokenOffError(_name(error)) from error
        self._is_over = not chunk
        return chunk

    def close(self) -> None:
        """A connection whose answer is not complete ends with it, and so does the work for it."""
        if self._is_over:
            self._response.release()
        else:
            self._response.close()


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
