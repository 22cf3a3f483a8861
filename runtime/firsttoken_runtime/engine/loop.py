"""The engine's loop: schedule -> execute -> sample -> publish.

It blocks in one place only, the mailbox, and there only while nothing is to be computed. Flags change
between two steps. Nothing one sequence does may end the loop: what cannot be served, what yields no
finite logits, and every sequence of a step that ran out of memory, ends as a `Failure`.
"""

import logging
import time

import torch

from firsttoken_api import hot_settings
from firsttoken_runtime import core
from firsttoken_runtime.engine import flags as engine_flags
from firsttoken_runtime.engine import loading, sampler
from firsttoken_runtime.engine import mailbox as engine_mailbox
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence

HEARTBEAT_S = 1.0
_FAILED_ALLOCATION = (MemoryError, RuntimeError)
"""torch reports it as either."""
_log = logging.getLogger(__name__)


class Loop:
    """Runs one engine until it is told to stop."""

    def __init__(self, engine: loading.Engine, mailbox: engine_mailbox.Mailbox) -> None:
        self._engine = engine
        self._mailbox = mailbox
        self._failures: list[core.Failure] = []
        self._step_number = 0
        self._is_stopping = False

    @property
    def scheduler(self) -> scheduling.Scheduler:
        return self._engine.scheduler

    def run(self) -> None:
        """Returns after `Shutdown`."""
        while not self._is_stopping:
            self.turn()

    def turn(self) -> None:
        """Take what has arrived, then one step; idle, wait for a message and beat the heart."""
        can_compute = self.scheduler.has_work and not self._mailbox.is_congested
        for message in self._mailbox.receive(0.0 if can_compute else HEARTBEAT_S):
            self._take(message)
        if self._is_stopping:
            return
        if self._mailbox.is_congested or not self.scheduler.has_work:
            self.publish([])
            return
        step = self.schedule()
        logits = self.execute(step)
        tokens = self.sample(step, logits)
        self.publish(tokens)

    def schedule(self) -> ScheduledStep:
        now = time.monotonic()
        step = self.scheduler.schedule(now)
        for work in step.prefills:
            work.sequence.note_scheduled(now)
        return step

    def execute(self, step: ScheduledStep) -> torch.Tensor | None:
        """Logits [R, V] of the work that samples; None when the step failed as a whole."""
        if not step.work:
            return None
        try:
            logits = self._engine.runner.execute(step, self.scheduler.pool.block_size_tokens)
        except _FAILED_ALLOCATION as error:
            self._fail_step(step, error)
            return None
        now = time.monotonic()
        for work in step.prefills:
            if work.samples:
                work.sequence.note_prefilled(now)
        return logits

    def sample(self, step: ScheduledStep, logits: torch.Tensor | None) -> list[core.Token]:
        if logits is None:
            return []
        try:
            sampled = sampler.sample(step, logits)
        except _FAILED_ALLOCATION as error:  # sorting many rows of a large vocabulary takes memory too
            self._fail_step(step, error)
            return []
        for sequence_id in sampled.not_finite:
            self._fail(sequence_id, "the model's output was not finite (NaN or infinity)")
        return self.scheduler.commit(step, sampled.tokens, time.monotonic()).tokens

    def publish(self, tokens: list[core.Token]) -> None:
        """Never blocks. A congested mailbox gets no empty heartbeats on top."""
        if self._mailbox.is_congested and not tokens and not self._failures:
            return
        self._step_number += 1
        output = core.StepOutput(
            step=self._step_number, tokens=tokens, failures=self._failures, stats=self.scheduler.stats()
        )
        self._failures = []
        self._mailbox.send(output)

    def _take(self, message: core.ToEngine) -> None:
        match message:
            case core.Submit():
                self._submit(message)
            case core.Abort(sequence_id=sequence_id):
                self.scheduler.abort(sequence_id)
            case core.SetFlags(settings_json=settings_json):
                self._mailbox.send(self.set_flags(settings_json))
            case core.Shutdown():
                self._is_stopping = True

    def _submit(self, message: core.Submit) -> None:
        vocabulary_size = self._engine.config.vocabulary_size
        if any(not 0 <= token_id < vocabulary_size for token_id in message.prompt_token_ids):
            self._fail(message.sequence_id, f"a token id of the prompt is not in 0..{vocabulary_size - 1}")
            return
        stop_ids = set(message.sampling.stop_token_ids)
        if not message.sampling.ignore_eos:
            stop_ids |= set(self._engine.eos_token_ids)
        sequence = Sequence(
            message.sequence_id,
            message.prompt_token_ids,
            message.sampling,
            message.arrival_s,
            # A model's own files may name an EOS id that its vocabulary does not have.
            frozenset(token_id for token_id in stop_ids if 0 <= token_id < vocabulary_size),
            queued_at_s=time.monotonic(),
        )
        try:
            self.scheduler.submit(sequence)
        except scheduling.NeverFits as refusal:
            self._fail(message.sequence_id, str(refusal))

    def set_flags(self, settings_json: bytes) -> core.FlagsApplied:
        """Switch before the next step, or say why not; then nothing has changed."""
        try:
            settings = hot_settings.HotSettings.model_validate_json(settings_json)
        except ValueError as error:
            return core.FlagsApplied(
                generation=0,
                hash="",
                enabled=self._engine.in_force.enabled,
                error=f"not hot settings: {error}",
            )
        problem = ""
        try:
            self._engine.switch(engine_flags.from_settings(settings.flags))
        except engine_flags.BadFlags as refusal:
            problem = str(refusal)
        return core.FlagsApplied(
            generation=settings.generation,
            hash=settings.content_hash(),
            enabled=self._engine.in_force.enabled,
            error=problem,
        )

    def _fail_step(self, step: ScheduledStep, error: Exception) -> None:
        _log.error("step %d failed, ending its %d sequences", step.number, len(step.work), exc_info=error)
        for work in step.work:
            self._fail(work.sequence.sequence_id, f"the engine could not compute this step: {error}")

    def _fail(self, sequence_id: int, message: str) -> None:
        self.scheduler.abort(sequence_id)
        self._failures.append(core.Failure(sequence_id=sequence_id, message=message))
