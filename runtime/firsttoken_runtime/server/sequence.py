"""One sequence as the server sees it, and those of one request together.

One queue a sequence, so tokens cannot mix. Putting a token never waits.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from firsttoken_api import errors
from firsttoken_runtime import core

CLIENT_BUFFER_TOKENS = 1024


@dataclass(frozen=True)
class Wanted:
    """One sequence as a handler asks for it."""

    prompt_token_ids: list[int]
    sampling: core.SamplingParams
    request_class: str = ""
    priority: int = 0
    expected_output_tokens: int | None = None
    cache_salt: str = ""
    shared_prefix_tokens: int = 0
    expected_uncached_tokens: int | None = None
    """Prompt tokens that are probably not in the cache when its turn comes; None = nobody can tell."""

    @property
    def uncached_tokens(self) -> int:
        """What it is counted with until the engine reports it."""
        known = self.expected_uncached_tokens
        return len(self.prompt_token_ids) if known is None else known


class Sequence:
    """The tokens of one answer, as they come. `arrived` is set whenever there is something to take."""

    def __init__(
        self,
        sequence_id: int,
        prompt_tokens: int,
        arrived: asyncio.Event,
        on_overflow: Callable[[], None] | None = None,
        *,
        request_class: str = "",
        uncached_tokens: int | None = None,
    ) -> None:
        self.sequence_id = sequence_id
        self.prompt_tokens = prompt_tokens
        self.uncached_tokens = prompt_tokens if uncached_tokens is None else uncached_tokens
        self.request_class = request_class
        self.prompt_scores: list[core.TokenLogprobs | None] | None = None
        """Set before the first token when the request asked for them."""
        self.has_finished = False
        self.finish_reason = ""
        self.error: errors.ApiError | None = None
        self._on_overflow = on_overflow
        self._pending: list[core.Token] = []
        self._arrived = arrived

    def take(self) -> list[core.Token]:
        """All tokens that came since the last call, maybe none. Raises ApiError if it failed.

        Those before a failure come first.
        """
        tokens = self._pending
        if tokens:
            self._pending = []
            if self.error is not None:
                self._arrived.set()
        elif self.error is not None:
            raise self.error
        return tokens

    def put(self, token: core.Token) -> None:
        self._pending.append(token)
        if token.finish_reason:
            self._finish(token.finish_reason)
        self._arrived.set()

    def put_scores(self, scores: core.PromptScores) -> None:
        self.prompt_scores = scores.scores
        if scores.finish_reason:
            self._finish(scores.finish_reason)
        self._arrived.set()

    def fail(self, error: errors.ApiError) -> None:
        self.error = error
        self.has_finished = True
        self._arrived.set()

    @property
    def has_overflowed(self) -> bool:
        """Whether the client reads so slowly that its unread tokens pass the buffer."""
        return self._on_overflow is not None and len(self._pending) > CLIENT_BUFFER_TOKENS

    def drop(self) -> None:
        """Its client reads too slowly: forget what it has not read, and cut its connection."""
        self._pending.clear()
        self.fail(errors.TooManyRequestsError("the client reads too slowly"))
        if self._on_overflow is not None:
            self._on_overflow()

    def _finish(self, reason: str) -> None:
        self.finish_reason = reason
        self.has_finished = True


class Group:
    """The sequences of one request, in the order of its answers."""

    def __init__(self, arrived: asyncio.Event, leave: Callable[[Sequence], None]) -> None:
        self.sequences: list[Sequence] = []
        self._arrived = arrived
        self.leave = leave
        """Nobody reads on in this one: abort it if it goes on. Again is safe."""

    async def wait(self) -> None:
        """Until one of them has something to take."""
        await self._arrived.wait()
        self._arrived.clear()

    @property
    def has_failed(self) -> bool:
        return any(sequence.error is not None for sequence in self.sequences)
