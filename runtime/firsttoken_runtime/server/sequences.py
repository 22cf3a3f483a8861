"""The tokens of each sequence, kept apart from those of the others between the engine and its reader.

A request has a group of sequences, one for each of its answers. One queue a sequence, so tokens cannot
mix; sequences that are left before their end are aborted. Putting a token never waits: a reader that falls
too far behind is dropped instead.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from firsttoken_api import errors
from firsttoken_runtime import core

log = logging.getLogger(__name__)

CLIENT_BUFFER_TOKENS = 1024


@dataclass(frozen=True)
class Wanted:
    """One sequence as a handler asks for it."""

    prompt_token_ids: list[int]
    sampling: core.SamplingParams
    request_class: str = ""
    priority: int = 0
    expected_output_tokens: int | None = None


class Sequence:
    """The tokens of one answer, as they come. `arrived` is set whenever there is something to take."""

    def __init__(
        self,
        sequence_id: int,
        prompt_tokens: int,
        arrived: asyncio.Event,
        on_overflow: Callable[[], None] | None = None,
    ) -> None:
        self.sequence_id = sequence_id
        self.prompt_tokens = prompt_tokens
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
        self, wanted: list[Wanted], arrival_s: float, on_overflow: Callable[[], None] | None = None
    ) -> Iterator[Group]:
        """Submit all, and abort those that go on when the block is left. Raises UnavailableError."""
        arrived = asyncio.Event()
        group = Group(arrived, self._leave)
        try:
            for one in wanted:
                group.sequences.append(self._submit(one, arrival_s, arrived, on_overflow))
            yield group
        finally:
            for sequence in group.sequences:
                self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        if self._open.pop(sequence.sequence_id, None) is not None and not sequence.has_finished:
            self._abort(sequence)

    def take(self, step: core.StepOutput) -> None:
        """Give each sequence the tokens, the scores, or the failure, that the step has for it."""
        for scores in step.prompts:
            if (sequence := self._open.get(scores.sequence_id)) is not None:
                sequence.put_scores(scores)
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
            sequence = self._open.get(failure.sequence_id)
            if sequence is not None and not sequence.has_finished:
                sequence.fail(errors.InternalError(failure.message, code="sequence_failed"))

    def fail(self, reason: str) -> None:
        """End all that have not ended: the engine is gone."""
        for sequence in self._open.values():
            if not sequence.has_finished:
                sequence.fail(errors.UnavailableError(reason))

    def _submit(
        self,
        wanted: Wanted,
        arrival_s: float,
        arrived: asyncio.Event,
        on_overflow: Callable[[], None] | None,
    ) -> Sequence:
        sequence = Sequence(self._next_id, len(wanted.prompt_token_ids), arrived, on_overflow)
        self._next_id += 1
        self._send(
            core.Submit(
                sequence_id=sequence.sequence_id,
                prompt_token_ids=wanted.prompt_token_ids,
                sampling=wanted.sampling,
                arrival_s=arrival_s,
                request_class=wanted.request_class,
                priority=wanted.priority,
                expected_output_tokens=wanted.expected_output_tokens,
            )
        )
        self._open[sequence.sequence_id] = sequence
        return sequence

    def _abort(self, sequence: Sequence) -> None:
        with suppress(errors.UnavailableError):  # an engine that is gone holds nothing
            self._send(core.Abort(sequence.sequence_id))
