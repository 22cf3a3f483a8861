"""One request for tokens, from when it is understood until it is sent for good."""

from collections.abc import Callable

from firsttoken_sidecar import arrivals, body_memory, dispatch, exchange, stages


class Work:
    """It holds the memory of the body, and gives it up when nobody will send it again."""

    def __init__(
        self,
        dispatcher: dispatch.Dispatch,
        arrival: arrivals.Arrival,
        request: dispatch.Request,
        lease: body_memory.Lease,
    ) -> None:
        """lease: of the memory of the body."""
        self._dispatch = dispatcher
        self._lease = lease
        self.arrival = arrival
        self.request = request
        self.is_shared = False
        """Others may wait for it too: it does not end with the client that brought it."""
        self.stamps: stages.Stamps | None = None
        """What its engine said of it, once it is answered."""

    async def open(self, on_sent: Callable[[], None]) -> exchange.Exchange:
        """As `Dispatch.open`."""
        try:
            return await self._dispatch.open(self.arrival, self.request, on_sent)
        finally:
            self.give_up_body()

    def give_up_body(self) -> None:
        """Nobody will send it again. A second time does nothing."""
        self.arrival.inspected.body = None
        self._lease.release()

    @property
    def used_tokens(self) -> int | None:
        """None: not known."""
        if self.stamps is None or self.stamps.completion_tokens is None:
            return None
        return self.stamps.prompt_tokens + self.stamps.completion_tokens
