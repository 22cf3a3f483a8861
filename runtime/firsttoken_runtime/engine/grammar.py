"""Grammars in the engine: compiled in a thread of their own, then one mask and one choice a step.

The scheduler's loop never compiles: it holds a sequence until `Grammars.compile` has answered. The server
has compiled the same text before, so that what fails or lasts here is rare, and costs its own request only.
A library call cannot be stopped, so a thread that lasts too long is left behind and replaced.
"""

import logging
import math
import queue
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import llguidance
import numpy
import torch

from firsttoken_runtime import guidance

log = logging.getLogger(__name__)

COMPILE_LIMIT_S = 10.0
TOKENIZER_LIMIT_S = 60.0
_TOKENIZER_DOCUMENT = "firsttoken_runtime.tokenizer_document"
MASK_LIMIT_S = 1.0
MAX_QUEUED = 1024
MAX_ABANDONED = 2
CACHED_GRAMMARS = 16


class Matcher:
    """Where one sequence is in its grammar. Its methods raise `guidance.GrammarError` when it cannot go on:
    the sequence then ends with a failure, never unconstrained."""

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        vocabulary_size: int,
        eos_token_ids: frozenset[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size
        self._eos_token_ids = eos_token_ids
        self._clock = clock

    @property
    def is_finished(self) -> bool:
        """Only an EOS token may follow, or has followed."""
        return self._matcher.is_stopped()

    def mask(self, unwanted: Collection[int] = ()) -> torch.Tensor:
        """Which tokens may come next, [V] bool.

        `unwanted` ids (the stop ids before `min_tokens`) are left out unless nothing else would be left:
        a text that is complete ends. An EOS id is in it only where the text may end.
        """
        started_s = self._clock()
        bits = numpy.frombuffer(self._matcher.compute_bitmask(), dtype=numpy.uint8)
        guidance.raise_if_failed(self._matcher)
        if self._clock() - started_s > MASK_LIMIT_S:
            raise guidance.GrammarError(f"one step of it took more than {MASK_LIMIT_S:g} s")
        allowed = numpy.unpackbits(bits, count=self._vocabulary_size, bitorder="little").view(numpy.bool_)
        kept = [token_id for token_id in unwanted if allowed[token_id]]
        if kept and numpy.count_nonzero(allowed) > len(kept):
            allowed[kept] = False
        if not allowed.any():
            raise guidance.GrammarError("no token of this model's vocabulary may follow")
        return torch.from_numpy(allowed)

    def accept(self, token_id: int) -> None:
        """Go on by one chosen token."""
        if self.is_finished and token_id in self._eos_token_ids:
            return
        self._matcher.consume_token(token_id)
        guidance.raise_if_failed(self._matcher)


@dataclass
class _Job:
    grammar: str
    future: "Future[Matcher]" = field(default_factory=Future)


@dataclass
class _Worker:
    """What the thread that compiles is at."""

    thread: threading.Thread | None = None
    job: _Job | None = None
    started_s: float = math.inf
    """Of its grammar; the tokenizer, which is read before, has a limit of its own."""
    is_abandoned: bool = False
    tokenizer: llguidance.LLTokenizer | None = None
    compiled: OrderedDict[str, llguidance.LLMatcher] = field(default_factory=OrderedDict)
    """The newest ones, never moved from their start."""


class Grammars:
    """Compiles grammars for one model. `poll` is to be called every step: it enforces the time limit."""

    def __init__(
        self,
        model_path: str,
        vocabulary_size: int,
        eos_token_ids: Collection[int],
        *,
        compile_limit_s: float = COMPILE_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Cheap: the tokenizer is read when the first grammar comes, in the thread."""
        self._model_path = model_path
        self._vocabulary_size = vocabulary_size
        self._eos_token_ids = frozenset(eos_token_ids)
        self._compile_limit_s = compile_limit_s
        self._clock = clock
        self._jobs: queue.Queue[_Job | None] = queue.Queue(MAX_QUEUED)
        self._worker: _Worker | None = None
        self._abandoned: list[threading.Thread] = []

    def compile(self, grammar: str) -> "Future[Matcher]":
        """A matcher at its start, or `guidance.GrammarError` in the future; never blocks."""
        job = _Job(grammar)
        if self._worker is None:
            if self._num_stuck() > MAX_ABANDONED:
                _fail(job, guidance.GrammarError("the compiler of grammars is stuck"))
                return job.future
            self._start()
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            _fail(job, guidance.GrammarError(f"{MAX_QUEUED} grammars wait already"))
        return job.future

    def poll(self) -> None:
        """Fail a grammar that takes too long, and go on with the next ones in another thread."""
        worker = self._worker
        if worker is None:
            return
        job = worker.job
        assert worker.thread is not None
        if not worker.thread.is_alive():  # what ended it is logged by the interpreter
            reason = "its compiler failed"
        elif job is None or self._clock() - worker.started_s <= self._compile_limit_s:
            return
        else:
            reason = f"it takes more than {self._compile_limit_s:g} s to compile"
            log.warning("a grammar took more than %g s to compile; its thread is left", self._compile_limit_s)
        worker.is_abandoned = True
        self._worker = None
        self._abandoned.append(worker.thread)
        if job is not None:
            _fail(job, guidance.GrammarError(reason))
        if self._num_stuck() <= MAX_ABANDONED:
            self._start()
            return
        while not self._jobs.empty():
            if (waiting := self._jobs.get_nowait()) is not None:
                _fail(waiting, guidance.GrammarError("the compiler of grammars is stuck"))

    def close(self) -> None:
        """The thread ends after what it is at."""
        if self._worker is not None:
            self._worker.is_abandoned = True
            self._worker = None
            with suppress(queue.Full):  # then it ends after the next one
                self._jobs.put_nowait(None)

    def _num_stuck(self) -> int:
        """Threads that were left and have not ended since."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        return len(self._abandoned)

    def _start(self) -> None:
        worker = self._worker = _Worker()
        previous_bytes = threading.stack_size(guidance.STACK_BYTES)
        try:
            worker.thread = threading.Thread(target=self._run, args=(worker,), name="grammars", daemon=True)
            worker.thread.start()
        finally:
            threading.stack_size(previous_bytes)

    def _run(self, worker: _Worker) -> None:
        while not worker.is_abandoned:
            job = self._jobs.get()
            if job is None:
                return
            if job.future.cancelled():  # nobody waits any more
                continue
            worker.started_s = math.inf
            worker.job = job
            try:
                if worker.tokenizer is None:
                    worker.tokenizer = self._build_tokenizer()
                worker.started_s = self._clock()
                compiled = self._compile(worker, job.grammar)
            except guidance.GrammarError as error:
                _fail(job, error)
            else:
                _settle(job, Matcher(compiled, self._vocabulary_size, self._eos_token_ids))
            worker.job = None

    def _compile(self, worker: _Worker, grammar: str) -> llguidance.LLMatcher:
        if grammar not in worker.compiled:
            assert worker.tokenizer is not None
            worker.compiled[grammar] = guidance.compile_grammar(worker.tokenizer, grammar)
            while len(worker.compiled) > CACHED_GRAMMARS:
                worker.compiled.popitem(last=False)
        worker.compiled.move_to_end(grammar)
        return worker.compiled[grammar].deep_copy()

    def _build_tokenizer(self) -> llguidance.LLTokenizer:
        command = [sys.executable, "-m", _TOKENIZER_DOCUMENT, self._model_path]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TOKENIZER_LIMIT_S, check=True
            )
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise guidance.GrammarError(f"the model's tokenizer cannot be read: {said.strip()}") from error
        return guidance.load_tokenizer(done.stdout, self._vocabulary_size, sorted(self._eos_token_ids))


def _settle(job: _Job, matcher: Matcher) -> None:
    with suppress(InvalidStateError):  # the time limit was faster
        job.future.set_result(matcher)


def _fail(job: _Job, error: guidance.GrammarError) -> None:
    with suppress(InvalidStateError):
        job.future.set_exception(error)
