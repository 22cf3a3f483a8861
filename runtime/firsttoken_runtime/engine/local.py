"""The engine in this process, without sockets: for tests and benchmarks."""

import time
from collections import deque

from firsttoken_runtime import core
from firsttoken_runtime.engine import flags, loading, loop


class ListMailbox:
    """Messages in memory. Never congested, never waits."""

    def __init__(self) -> None:
        self.inbox: deque[core.ToEngine] = deque()
        self.outbox: list[core.FromEngine] = []
        self.is_congested = False

    def receive(self, timeout_s: float) -> list[core.ToEngine]:
        messages = list(self.inbox)
        self.inbox.clear()
        return messages

    def send(self, message: core.FromEngine) -> None:
        self.outbox.append(message)


class LocalEngine:
    """Submit prompts, step, collect tokens."""

    def __init__(self, engine: loading.Engine) -> None:
        self.engine = engine
        self.mailbox = ListMailbox()
        self.loop = loop.Loop(engine, self.mailbox)
        self.tokens: dict[int, list[int]] = {}
        self.token_times_s: dict[int, list[float]] = {}
        self.finish_reasons: dict[int, str] = {}
        self.failures: dict[int, str] = {}
        self._next_id = 0

    @classmethod
    def load(cls, settings: core.EngineSettings, in_force: flags.InForce | None = None) -> "LocalEngine":
        return cls(loading.load(settings, in_force or flags.defaults(), lambda _: None))

    def submit(self, prompt_token_ids: list[int], sampling: core.SamplingParams) -> int:
        """Queue a prompt; returns its id."""
        self._next_id += 1
        self.tokens[self._next_id] = []
        self.token_times_s[self._next_id] = []
        self.mailbox.inbox.append(
            core.Submit(
                sequence_id=self._next_id,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
                arrival_s=time.monotonic(),
            )
        )
        return self._next_id

    def abort(self, sequence_id: int) -> None:
        self.mailbox.inbox.append(core.Abort(sequence_id))

    def step(self) -> None:
        """One turn of the loop."""
        self.loop.turn()
        now = time.monotonic()
        for message in self.mailbox.outbox:
            if isinstance(message, core.StepOutput):
                for token in message.tokens:
                    self.tokens[token.sequence_id].append(token.token_id)
                    self.token_times_s[token.sequence_id].append(now)
                    if token.finish_reason:
                        self.finish_reasons[token.sequence_id] = token.finish_reason
                self.failures |= {failure.sequence_id: failure.message for failure in message.failures}
        self.mailbox.outbox.clear()

    def run(self) -> None:
        """Step until nothing is left."""
        while self.mailbox.inbox or self.loop.scheduler.has_work:
            self.step()

    def generate(self, prompts: list[list[int]], sampling: core.SamplingParams) -> list[list[int]]:
        """Outputs of all prompts, in their order, computed together."""
        ids = [self.submit(prompt, sampling) for prompt in prompts]
        self.run()
        return [self.tokens[sequence_id] for sequence_id in ids]
