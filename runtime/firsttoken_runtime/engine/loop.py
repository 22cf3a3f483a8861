"""The engine's loop: schedule -> execute -> sample -> publish.

It blocks in one place only, the mailbox, and there only while nothing is to be computed; a grammar that
is compiled in another thread wakes it. Flags change between two steps. Copies from and to the host tier are
started before the forward pass of their step. Nothing one sequence does may end
the loop: what cannot be served, what yields no finite logits, and every sequence of a step that ran out
of memory, ends as a `Failure`.
"""

import logging
import time

import msgspec

from firsttoken_runtime import core
from firsttoken_runtime.engine import engine as engines
from firsttoken_runtime.engine import (
    failures,
    grammar,
    intake,
    matching,
    prompt_scores,
    sampler,
    step_checks,
    switch_meter,
    switching,
)
from firsttoken_runtime.engine import mailbox as engine_mailbox
from firsttoken_runtime.engine.runner import Forward
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep

HEARTBEAT_S = 1.0
RESTORING_S = 0.01
"""Instead, while the host tier takes in what its folder had."""
_log = logging.getLogger(__name__)


class Loop:
    """Runs one engine until it is told to stop."""

    def __init__(
        self,
        engine: engines.Engine,
        mailbox: engine_mailbox.Mailbox,
        grammars: matching.Grammars | None = None,
    ) -> None:
        self._engine = engine
        self._mailbox = mailbox
        vocabulary_size, eos_token_ids = engine.config.vocabulary_size, engine.eos_token_ids
        if grammars is None:
            grammars = grammar.Grammars(engine.settings.model_path, vocabulary_size, eos_token_ids)
        self._intake = intake.Intake(vocabulary_size, eos_token_ids, grammars, mailbox.wake)
        self._sampler = sampler.Sampler()
        self._scorer = prompt_scores.PromptScorer()
        self._switches = switch_meter.SwitchMeter()
        self._failures: list[core.Failure] = []
        self._prompts: list[core.PromptScores] = []
        self._computed_tokens = 0
        self._step_number = 0
        self._is_stopping = False

    @property
    def scheduler(self) -> scheduling.Scheduler:
        return self._engine.scheduler

    @property
    def has_work(self) -> bool:
        """Something is to be computed, now or when its grammar is compiled."""
        return self.scheduler.has_work or self._intake.is_compiling

    def run(self) -> None:
        """Returns after `Shutdown`."""
        while not self._is_stopping:
            self.turn()

    def turn(self) -> None:
        """Take what has arrived, then one step; idle, wait for a message and beat the heart."""
        can_compute = self.scheduler.has_work and not self._mailbox.is_congested
        self._engine.host.settle(is_idle=not can_compute)
        idle_s = RESTORING_S if self._engine.host.is_restoring else HEARTBEAT_S
        for message in self._mailbox.receive(0.0 if can_compute else idle_s):
            self._take(message)
        if self._is_stopping:
            return
        for failure in self._intake.release_compiled(
            self.scheduler, self._sampler.constrain, time.monotonic()
        ):
            self._fail(failure)
        if self._mailbox.is_congested or not self.scheduler.has_work:
            self.publish([])
            return
        step = self.schedule()
        forward = self.execute(step)
        tokens = self.sample(step, forward)
        self.publish(tokens)

    def schedule(self) -> ScheduledStep:
        now = time.monotonic()
        step = self.scheduler.schedule(now)
        for work in step.prefills:
            work.sequence.note_scheduled(now)
        return step

    def execute(self, step: ScheduledStep) -> Forward | None:
        """None when nothing was computed, or the step failed as a whole."""
        if not (step.work or step.saves or step.loads):
            return None
        self._switches.note_step(time.monotonic())
        host, pool = self._engine.host, self.scheduler.pool
        try:
            host.copy(step)
            if not step.work:
                return None
            step_checks.note_loaded(step, time.monotonic())
            step_checks.assert_writable(step, pool)
            forward = self._engine.runner.execute(step, pool.block_size_tokens, host.before_layer(step))
        except failures.ALLOCATION as error:
            self._fail_step(step, error)
            return None
        finally:
            host.hold_computation()
        now = time.monotonic()
        for work in step.prefills:
            if work.samples:
                work.sequence.note_prefilled(now)
        return forward

    def sample(self, step: ScheduledStep, forward: Forward | None) -> list[core.Token]:
        if forward is None:
            return []
        try:
            scored = self._scorer.score(step, forward, self._engine.runner)
            sampled = self._sampler.sample(step, forward.logits)
        except failures.ALLOCATION as error:  # sorting many rows of a large vocabulary takes memory too
            self._fail_step(step, error)
            return []
        broken = {
            sequence_id: core.Failure(sequence_id=sequence_id, message=sampler.NOT_FINITE, code="not_finite")
            for sequence_id in forward.broken
        }
        failed = broken | scored.failures | sampled.failures
        for failure in failed.values():
            self._fail(failure)
        self._prompts += [prompt for prompt in scored.prompts if prompt.sequence_id not in failed]
        self._computed_tokens = step.num_tokens
        committed = self.scheduler.commit(step, sampled.tokens, time.monotonic(), sampled.complete)
        # A first token is what its client waits for, so none is written after the others of its step: each of
        # those costs the server, and a sidecar before it, some tens of microseconds.
        first = {work.sequence.sequence_id for work in step.prefills}
        return [
            msgspec.structs.replace(token, logprobs=logprobs)
            if (logprobs := sampled.logprobs.get(token.sequence_id)) is not None
            else token
            for token in sorted(committed.tokens, key=lambda token: token.sequence_id not in first)
        ]

    def publish(self, tokens: list[core.Token]) -> None:
        """Never blocks. A congested mailbox gets no empty heartbeats on top."""
        self._switches.note_tokens((token.sequence_id for token in tokens), time.monotonic())
        for keeper in (self._sampler, self._scorer, self._switches):
            keeper.forget_all_but(self.scheduler.is_open)
        if self._mailbox.is_congested and not (tokens or self._failures or self._prompts):
            return
        self._step_number += 1
        output = core.StepOutput(
            step=self._step_number,
            tokens=tokens,
            failures=self._failures,
            stats=self.stats(),
            prompts=self._prompts,
            computed_tokens=self._computed_tokens,
        )
        self._failures, self._prompts, self._computed_tokens = [], [], 0
        self._mailbox.send(output)

    def _take(self, message: core.ToEngine) -> None:
        match message:
            case core.Submit():
                if (failure := self._intake.submit(message, self.scheduler)) is not None:
                    self._fail(failure)
            case core.Abort(sequence_id=sequence_id):
                self.scheduler.abort(sequence_id)
            case core.Pin(prompts=prompts):
                self._engine.pin(prompts)
            case core.SetFlags(settings_json=settings_json):
                self._mailbox.send(self.set_flags(settings_json))
            case core.Shutdown():
                self._is_stopping = True

    def stats(self) -> core.Stats:
        """Of scheduler, cache and switches."""
        return msgspec.structs.replace(
            self._engine.stats(), switch_pause_s=self._switches.pause_s, switch_gap_s=self._switches.gap_s
        )

    def set_flags(self, settings_json: bytes) -> core.FlagsApplied:
        """Between two steps."""
        accepted_s = time.monotonic()
        last_token_s = self.scheduler.last_token_times()
        applied = switching.switch(self._engine, settings_json)
        if applied.recompute_tokens:
            self._switches.note_switch(accepted_s, last_token_s)
        return applied

    def _fail_step(self, step: ScheduledStep, error: Exception) -> None:
        _log.error("step %d failed, ending its %d sequences", step.number, len(step.work), exc_info=error)
        message = f"the engine could not compute this step: {error}"
        for work in step.work:
            sequence_id = work.sequence.sequence_id
            self._fail(core.Failure(sequence_id=sequence_id, message=message, code=failures.code(error)))

    def _fail(self, failure: core.Failure) -> None:
        self.scheduler.abort(failure.sequence_id)
        self._failures.append(failure)
