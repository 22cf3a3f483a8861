"""The tokens of each request, kept apart from those of the others between the engine and its reader.

One queue a sequence, so tokens cannot mix; a sequence that is left before its end is aborted. Putting a
token never waits: a reader that falls too far behind is dropped instead.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from firsttoken_api import errors
from firsttoken_runtime import core

log = logging.getLogger(__name__)

CLIENT_BUFFER_TOKENS = 1024


class Sequence:
    """The tokens of one request, as they come."""

    def __init__(
        self, sequence_id: int, prompt_tokens: int, on_overflow: Callable[[], None] | None = None
    ) -> None:
        self.sequence_id = sequence_id
        self.prompt_tokens = prompt_tokens
        self.has_finished = False
        self._on_overflow = on_overflow
        self._pending: list[core.Token] = []
        self._error: errors.ApiError | None = None
        self._arrived = asyncio.Event()

    async def next_tokens(self) -> list[core.Token]:
        """All tokens that arrived since the last call, at least one. Raises ApiError if it failed."""
        await self._arrived.wait()
        if self._pending:
            tokens, self._pending = self._pending, []
            if self._error is None:
                self._arrived.clear()
            return tokens
        assert self._error is not None
        raise self._error

    def put(self, token: core.Token) -> None:
        self._pending.append(token)
        self.has_finished = bool(token.finish_reason)
        self._arrived.set()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    @property
    def has_overflowed(self) -> bool:
        """Whether the client reads so slowly that its unread tokens pass the buffer."""
        return self._on_overflow is not None and len(self._pending) > CLIENT_BUFFER_TOKENS

    def fail(self, error: errors.ApiError) -> None:
        self._error = error
        self.has_finished = True
        self._arrived.set()

    def drop(self) -> None:
        """Its client reads too slowly: forget what it has not read, and cut its connection."""
        self._pending.clear()
        self.fail(errors.TooManyRequestsError("the client reads too slowly"))
        if self._on_overflow is not None:
            self._on_overflow()


class Sequences:
    """All open sequences. `send` carries a message to the engine, or raises UnavailableError."""

    def __init__(self, send: Callable[[core.ToEngine], None]) -> None:
        self._send = send
        self._open: dict[int, Sequence] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._open)

    @property
    def longest_prompt_tokens(self) -> int:
        return max((one.prompt_tokens for one in self._open.values()), default=0)

    @contextmanager
    def submitted(
        self,
        prompt_token_ids: list[int],
        sampling: core.SamplingParams,
        arrival_s: float,
        on_overflow: Callable[[], None] | None = None,
    ) -> Iterator[Sequence]:
        """Submit, and abort if the block is left before the last token. Raises UnavailableError."""
        sequence = Sequence(self._next_id, len(prompt_token_ids), on_overflow)
        self._next_id += 1
        self._send(
            core.Submit(
                sequence_id=sequence.sequence_id,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
                arrival_s=arrival_s,
            )
        )
        self._open[sequence.sequence_id] = sequence
        try:
            yield sequence
        finally:
            del self._open[sequence.sequence_id]
            if not sequence.has_finished:
                self._abort(sequence)

    def take(self, step: core.StepOutput) -> None:
        """Give each sequence the tokens, or the failure, that the step has for it."""
        for token in step.tokens:
            sequence = self._open.get(token.sequence_id)
            if sequence is None or sequence.has_finished:
                continue  # aborted a moment ago
            sequence.put(token)
            if sequence.has_overflowed:
                log.warning("sequence %d: its client reads too slowly and is dropped", token.sequence_id)
                sequence.drop()
                self._abort(sequence)
        for failure in step.failures:
            if (sequence := self._open.get(failure.sequence_id)) is not None:
                sequence.fail(errors.InternalError(failure.message, code="sequence_failed"))

    def fail(self, reason: str) -> None:
        """End all that have not ended: the engine is gone."""
        for sequence in self._open.values():
            if not sequence.has_finished:
                sequence.fail(errors.UnavailableError(reason))

    def _abort(self, sequence: Sequence) -> None:
        with suppress(errors.UnavailableError):  # an engine that is gone holds nothing
            self._send(core.Abort(sequence.sequence_id))
