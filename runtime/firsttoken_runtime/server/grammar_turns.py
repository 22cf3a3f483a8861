"""Whose grammar is looked at next: there is one checker, and a hostile grammar takes seconds of it.

Each client has a credit of checking time that fills up again. The turn goes to who has most of it left, so
that somebody with one grammar waits for one check and not for all those of another; who has none left is
told when to come again.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from firsttoken_api import errors

CREDIT_S = 10.0
CREDIT_PER_S = 0.25
"""An ordinary grammar takes 5 to 50 ms: that is at least five new ones a second for ever, and 200 at once."""
MAX_WAITING = 64
MAX_WAITING_OF_CLIENT = 32


@dataclass
class Turn:
    """What its holder has spent so far: it says so itself, because not all time is the grammar's fault."""

    spent_s: float = 0.0


@dataclass
class _Waiting:
    client: str
    turn: asyncio.Future[None]


class GrammarTurns:
    """One turn at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, tuple[float, float]] = {}
        """Clients that have less than the whole credit -> what of it is spent, and when that was so."""
        self._waiting: list[_Waiting] = []
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[Turn]:
        """Wait for a turn and hold it. Raises TooManyRequestsError."""
        await self._take(client)
        turn = Turn()
        try:
            yield turn
        finally:
            now = self._clock()
            self._spent[client] = (self._spent_by(client, now) + turn.spent_s, now)
            self._pass_on()

    async def _take(self, client: str) -> None:
        now = self._clock()
        self._forget(now)
        if (over_s := self._spent_by(client, now) - CREDIT_S) >= 0:
            raise errors.TooManyRequestsError(
                "the schemas of this client took too long to check lately",
                retry_after_s=max(1, math.ceil(over_s / CREDIT_PER_S)),
            )
        if not self._is_taken:
            self._is_taken = True
            return
        own = sum(one.client == client for one in self._waiting)
        if len(self._waiting) >= MAX_WAITING or own >= MAX_WAITING_OF_CLIENT:
            raise errors.TooManyRequestsError(
                f"{len(self._waiting)} schemas wait to be checked, {own} of them of this client",
                retry_after_s=1,
            )
        waiting = _Waiting(client, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:  # it had just been given
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        now = self._clock()
        if not self._waiting:
            self._is_taken = False
            return
        # The first of those that are equal: who waits longest.
        following = min(self._waiting, key=lambda one: self._spent_by(one.client, now))
        self._waiting.remove(following)
        following.turn.set_result(None)

    def _spent_by(self, client: str, now: float) -> float:
        spent_s, at_s = self._spent.get(client, (0.0, now))
        return max(0.0, spent_s - (now - at_s) * CREDIT_PER_S)

    def _forget(self, now: float) -> None:
        """Clients choose how many they are: those with their whole credit are not kept."""
        for client in [one for one in self._spent if self._spent_by(one, now) == 0]:
            del self._spent[client]
