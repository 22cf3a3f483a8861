"""Connections that nobody uses do not stay: a client that sends no request holds a socket, not the server.

aiohttp ends a kept-alive connection after a while, but one that never sent a whole request head (an idle
one, or one that sends it byte by byte) stays for ever. So connections without a request in progress are
looked at from time to time, and closed when their last request, or their start, is too long ago; the
longest idle ones go first when there are too many.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

IDLE_S = 75.0
"""Longer than the connection pools of common clients keep an unused connection."""
MOST_CONNECTIONS = 4096
_LOOK_EVERY_S = 5.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class IdleConnections:
    """Of one aiohttp server; `middleware` tells it which connections are in use."""

    def __init__(self, idle_s: float = IDLE_S, most: int = MOST_CONNECTIONS) -> None:
        self._idle_s = idle_s
        self._most = most
        self._in_use: dict[object, int] = {}
        """Requests in progress of each connection that has any."""
        self._last_used_s: dict[object, float] = {}

    @property
    def middleware(self) -> Middleware:
        """Notes the connection of every request as used."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            self._in_use[connection] = self._in_use.get(connection, 0) + 1
            try:
                return await handler(request)
            finally:
                self._in_use[connection] -= 1
                if not self._in_use[connection]:
                    del self._in_use[connection]
                self._last_used_s[connection] = asyncio.get_running_loop().time()

        return note

    def close_idle(self, server: web.Server, now: float) -> int:
        """Close what was idle for too long, and the longest idle ones beyond the limit; returns how many."""
        idle = [one for one in server.connections if one not in self._in_use]
        self._last_used_s = {one: self._last_used_s.get(one, now) for one in idle}
        idle.sort(key=lambda one: self._last_used_s[one])
        excess = max(0, len(server.connections) - self._most)
        closed = 0
        for one in idle:
            if closed >= excess and now - self._last_used_s[one] < self._idle_s:
                break
            one.force_close()
            closed += 1
        return closed

    async def keep_closing(self, server: web.Server) -> None:
        """Look again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.close_idle(server, loop.time())
            await asyncio.sleep(min(_LOOK_EVERY_S, self._idle_s / 4))
