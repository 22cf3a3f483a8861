"""A request under way: its answer, and the ticket of whoever let it into the engine's line."""

from collections.abc import Mapping

from firsttoken_sidecar import admission, answers, stages


class Exchange:
    """An `answers.Answer`. Close it, whatever happened."""

    def __init__(self, upstream: answers.Upstream, ticket: admission.Ticket | None) -> None:
        """ticket: None for a request that a peer took."""
        self._upstream = upstream
        self.read = upstream.read
        """Itself, since a frame less counts in what is called for each token."""
        self.ticket = ticket
        self.completion_tokens: int | None = None
        """Of an answer that ended by itself, where its engine says."""

    @property
    def status(self) -> int:
        return self._upstream.status

    @property
    def reason(self) -> str | None:
        return self._upstream.reason

    @property
    def headers(self) -> Mapping[str, str]:
        return self._upstream.headers

    @property
    def estimate(self) -> admission.Estimate | None:
        """What it was let in with, where that was decided here and by something."""
        return self.ticket.estimate if self.ticket is not None else None

    def ended(self, stamps: stages.Stamps | None) -> None:
        """The answer is complete. `stamps`: what the engine said of it."""
        if stamps is not None:
            self.completion_tokens = stamps.completion_tokens

    def first_content(self, ttft_s: float, stamps: stages.Stamps | None) -> None:
        """Its first content was written, so long after its arrival."""
        if self.ticket is not None:
            self.ticket.first_content(ttft_s, stamps)

    def close(self) -> None:
        """An answer that is not complete is given up by whoever computes it."""
        self._upstream.close()
        if self.ticket is not None:
            self.ticket.closed(self.completion_tokens)
