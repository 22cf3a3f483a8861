"""Equal requests at the same time are computed once: a retry storm costs the engine one answer.

Two requests are equal only with the same tenant, the same body and the same headers that change an answer,
and then only if their client says so (Idempotency-Key, X-Request-Id) or the same API key asks what has one
answer (temperature 0, or a seed). Nothing is kept of what has been answered: this is no cache.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping

from firsttoken_api import names
from firsttoken_sidecar import arrivals, computation, headers, metrics

_CHANGING = (names.HEADER_CLASS, names.HEADER_ROUTE, "Accept")


def keys(arrival: arrivals.Arrival, target: str, client: Mapping[str, str]) -> tuple[Hashable, ...]:
    """What this request can be joined by; empty: by nothing. `client`: its headers."""
    inspected = arrival.inspected
    if inspected.body is None:
        return ()
    same = (
        arrival.caller.tenant,
        target,
        inspected.body_hash,
        *(client.get(name, "") for name in _CHANGING),
        headers.wants_timing(client),
    )
    found: list[Hashable] = []
    if inspected.idempotency_key:
        found.append(("idempotency key", inspected.idempotency_key, same))
    if request_id := client.get(names.HEADER_REQUEST_ID, ""):
        found.append(("request id", request_id, same))
    if inspected.is_repeatable and arrival.caller.name:
        found.append(("api key", arrival.caller.name, same))
    return tuple(found)


class Joiner:
    """The computations under way that others may join."""

    def __init__(self, counts: metrics.Counts) -> None:
        self._counts = counts
        self._by_key: dict[Hashable, computation.Computation] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._memory = computation.ReplayMemory()

    def find(self, wanted: tuple[Hashable, ...]) -> computation.Computation | None:
        """One that can still be joined, and then is."""
        found = next((self._by_key[key] for key in wanted if key in self._by_key), None)
        if found is not None:
            self._counts.joined += 1
        return found

    def start(
        self,
        wanted: tuple[Hashable, ...],
        opening: computation.Opening,
        watching: computation.Watching,
        on_ended: Callable[[], None],
    ) -> computation.Computation:
        """A new one, to be found by these keys until it ends or has grown too long.

        `on_ended` is called at its end, also when it never began.
        """

        def forget() -> None:
            for key in wanted:
                if self._by_key.get(key) is started:
                    del self._by_key[key]

        started = computation.Computation(opening, watching, self._memory, on_closed=forget)
        self._by_key.update(dict.fromkeys(wanted, started))
        task = asyncio.create_task(started.run(), name="computation")
        started.task = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: on_ended())
        return started

    async def close(self) -> None:
        """Gives up what is left, at the end of the process."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
