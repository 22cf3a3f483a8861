"""New sequences on their way into the scheduler: checked again, and held until their grammar is compiled.

The server has checked requests already. What still cannot be served ends as a failure of that request;
the engine goes on. Grammars are compiled in a thread of their own, never in the loop.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime import core
from firsttoken_runtime.engine.matching import Grammars, Matcher
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence

COMPILE_TIMEOUT_S = 30.0
"""Waiting for other grammars included; each of them has a shorter limit of its own."""


@dataclass(frozen=True)
class _Compiling:
    future: Future[Any]
    deadline_s: float


class Intake:
    """Takes `Submit` messages for one scheduler."""

    def __init__(
        self,
        vocabulary_size: int,
        eos_token_ids: tuple[int, ...],
        grammars: Grammars,
        wake: Callable[[], None],
    ) -> None:
        """wake: called from another thread whenever a grammar is done."""
        self._vocabulary_size = vocabulary_size
        self._eos_token_ids = eos_token_ids
        self._grammars = grammars
        self._wake = wake
        self._compiling: dict[int, _Compiling] = {}

    @property
    def is_compiling(self) -> bool:
        return bool(self._compiling)

    def submit(self, message: core.Submit, scheduler: scheduling.Scheduler) -> core.Failure | None:
        """Queue a sequence, or say why not."""
        reason = refusal(message, self._vocabulary_size)
        if reason is not None:
            return _refused(message.sequence_id, reason)
        try:
            scheduler.submit(self._sequence(message))
        except scheduling.NeverFits as never:
            return _refused(message.sequence_id, str(never))
        if message.sampling.grammar:
            scheduler.hold(message.sequence_id)
            future = self._grammars.compile(message.sampling.grammar)
            self._compiling[message.sequence_id] = _Compiling(future, time.monotonic() + COMPILE_TIMEOUT_S)
            future.add_done_callback(lambda _: self._wake())
        return None

    def release_compiled(
        self, scheduler: scheduling.Scheduler, constrain: Callable[[int, Matcher], None], now: float
    ) -> list[core.Failure]:
        """Let go on what has its matcher; the failures are of grammars that have none and never will."""
        failures: list[core.Failure] = []
        if not self._compiling:
            return failures
        self._grammars.poll()
        for sequence_id, compiling in list(self._compiling.items()):
            future = compiling.future
            if not scheduler.is_open(sequence_id):  # aborted meanwhile
                future.cancel()
            elif future.done():
                error = future.exception()
                if error is None:
                    constrain(sequence_id, future.result())
                    scheduler.release(sequence_id)
                else:
                    failures.append(_no_grammar(sequence_id, str(error) or type(error).__name__))
            elif now >= compiling.deadline_s:
                future.cancel()
                failures.append(_no_grammar(sequence_id, f"not compiled within {COMPILE_TIMEOUT_S:.0f} s"))
            else:
                continue
            del self._compiling[sequence_id]
        return failures

    def _sequence(self, message: core.Submit) -> Sequence:
        stop_ids = set(message.sampling.stop_token_ids)
        if not message.sampling.ignore_eos:
            stop_ids |= set(self._eos_token_ids)
        return Sequence(
            message.sequence_id,
            message.prompt_token_ids,
            message.sampling,
            message.arrival_s,
            # A model's own files may name an EOS id that its vocabulary does not have.
            frozenset(token_id for token_id in stop_ids if 0 <= token_id < self._vocabulary_size),
            queued_at_s=message.sent_s,
            request_class=message.request_class,
            priority=message.priority,
            expected_output_tokens=message.expected_output_tokens,
            cache_salt=message.cache_salt,
            shared_prefix_tokens=message.shared_prefix_tokens,
        )


def refusal(message: core.Submit, vocabulary_size: int) -> str | None:
    """What of a request would reach past the logits or make them something else than numbers, or None."""
    known = range(vocabulary_size)
    sampling = message.sampling
    if any(token_id not in known for token_id in message.prompt_token_ids):
        return f"a token id of the prompt is not in 0..{vocabulary_size - 1}"
    for token_id, bias in sampling.logit_bias.items():
        if token_id not in known:
            return f"logit_bias: token id {token_id} is not in 0..{vocabulary_size - 1}"
        if not math.isfinite(bias):
            return f"logit_bias: the bias of token {token_id} is {bias}"
    for name in ("logprobs", "prompt_logprobs"):
        if (count := getattr(sampling, name)) is not None and count < 0:
            return f"{name} is {count}"
    for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"):
        if not math.isfinite(value := getattr(sampling, name)):
            return f"{name} is {value}"
    if not (sampling.repetition_penalty > 0 and math.isfinite(sampling.repetition_penalty)):
        return f"repetition_penalty is {sampling.repetition_penalty}"
    if message.shared_prefix_tokens < 0:
        return f"shared_prefix_tokens is {message.shared_prefix_tokens}"
    if sampling.max_tokens == 0 and sampling.prompt_logprobs is None:
        return "max_tokens is 0 and no prompt logprobs are asked for: nothing would be computed"
    return None


def _refused(sequence_id: int, message: str) -> core.Failure:
    return core.Failure(sequence_id=sequence_id, message=message, code="refused")


def _no_grammar(sequence_id: int, reason: str) -> core.Failure:
    message = f"the grammar of the answer cannot be used: {reason}"
    return core.Failure(sequence_id=sequence_id, message=message, code="grammar")
