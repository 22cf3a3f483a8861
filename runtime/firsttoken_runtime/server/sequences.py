"""All open sequences, between the engine that makes their tokens and the handlers that read them.

A request has a group of sequences, one for each of its answers; those that are left before their end are
aborted. The engine never waits for a reader: one that falls too far behind is dropped instead.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server.sequence import Group, Sequence, Wanted

log = logging.getLogger(__name__)

STEPS_UNTIL_SEEN = 2
"""The step that runs when a sequence is sent has begun without it; the next one reports it."""


class Sequences:
    """All open sequences. `send` carries a message to the engine, or raises UnavailableError; `on_computed`
    is told tokens whose KV the engine has computed, and their salt."""

    def __init__(
        self,
        send: Callable[[core.ToEngine], None],
        on_computed: Callable[[list[int], str], None] = lambda token_ids, salt: None,
    ) -> None:
        self._send = send
        self._on_computed = on_computed
        self._texts: dict[int, tuple[list[int], list[int], str]] = {}
        """Of each open sequence its prompt, its answer so far, and its salt."""
        self._open: dict[int, Sequence] = {}
        self._next_id = 1
        self._num_steps = 0
        self._sent_after: dict[int, int] = {}
        """Sequences that may be unseen, oldest first -> the number of steps there had been."""
        self.unseen_tokens: Counter[str] = Counter()
        """Prompt tokens of each class that the engine's last report may not count yet: a burst is sent whole
        while one step runs."""

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
        if sequence.sequence_id not in self._open:
            return
        self._see(sequence)
        del self._open[sequence.sequence_id]
        self._texts.pop(sequence.sequence_id, None)
        if not sequence.has_finished:
            self._abort(sequence)

    def _see(self, sequence: Sequence) -> None:
        if self._sent_after.pop(sequence.sequence_id, None) is not None:
            self.unseen_tokens[sequence.request_class] -= sequence.uncached_tokens

    def _count_step(self) -> None:
        """What the report of this step counts is no longer unseen."""
        self._num_steps += 1
        while self._sent_after:
            oldest, sent_after = next(iter(self._sent_after.items()))
            if self._num_steps - sent_after < STEPS_UNTIL_SEEN:
                break
            self._see(self._open[oldest])

    def take(self, step: core.StepOutput) -> None:
        """Give each sequence the tokens, the scores, or the failure, that the step has for it."""
        self._count_step()
        for scores in step.prompts:
            if (sequence := self._open.get(scores.sequence_id)) is not None:
                sequence.put_scores(scores)
        for token in step.tokens:
            sequence = self._open.get(token.sequence_id)
            if sequence is None or sequence.has_finished:
                continue  # aborted a moment ago
            sequence.put(token)
            self._note_computed(token)
            if sequence.has_overflowed:
                log.warning("sequence %d: its client reads too slowly and is dropped", token.sequence_id)
                sequence.drop()
                self._abort(sequence)
        for failure in step.failures:
            sequence = self._open.get(failure.sequence_id)
            if sequence is not None and not sequence.has_finished:
                sequence.fail(_error(failure))

    def _note_computed(self, token: core.Token) -> None:
        """With its first token a prompt is computed, with its last one all but that of the answer."""
        text = self._texts.get(token.sequence_id)
        if text is None:
            return
        prompt, answer, salt = text
        if token.times is not None:
            self._on_computed(prompt, salt)
        if token.finish_reason:
            if answer:
                self._on_computed(prompt + answer, salt)
            del self._texts[token.sequence_id]
        else:
            answer.append(token.token_id)

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
        sequence = Sequence(
            self._next_id,
            len(wanted.prompt_token_ids),
            arrived,
            on_overflow,
            request_class=wanted.request_class,
            uncached_tokens=wanted.uncached_tokens,
        )
        self._next_id += 1
        self._send(
            core.Submit(
                sequence_id=sequence.sequence_id,
                prompt_token_ids=wanted.prompt_token_ids,
                sampling=wanted.sampling,
                arrival_s=arrival_s,
                sent_s=time.monotonic(),
                request_class=wanted.request_class,
                priority=wanted.priority,
                expected_output_tokens=wanted.expected_output_tokens,
                cache_salt=wanted.cache_salt,
                shared_prefix_tokens=wanted.shared_prefix_tokens,
            )
        )
        self._open[sequence.sequence_id] = sequence
        self._texts[sequence.sequence_id] = (wanted.prompt_token_ids, [], wanted.cache_salt)
        self._sent_after[sequence.sequence_id] = self._num_steps
        self.unseen_tokens[sequence.request_class] += sequence.uncached_tokens
        return sequence

    def _abort(self, sequence: Sequence) -> None:
        with suppress(errors.UnavailableError):  # an engine that is gone holds nothing
            self._send(core.Abort(sequence.sequence_id))


def _error(failure: core.Failure) -> errors.ApiError:
    """What can never be served is the request's fault: the pool may be smaller for it than for another."""
    if failure.code == "refused":
        return errors.BadRequestError(failure.message, code="refused")
    return errors.InternalError(failure.message, code="sequence_failed")
