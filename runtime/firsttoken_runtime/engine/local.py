"""The engine in this process, without sockets: for tests and benchmarks."""

import time
from collections import deque

from firsttoken_runtime import core
from firsttoken_runtime.engine import engine as engines
from firsttoken_runtime.engine import flags, loading, loop, matching

COMPILING_PAUSE_S = 0.001


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

    def wake(self) -> None:
        """Nobody waits."""

    def send(self, message: core.FromEngine) -> None:
        self.outbox.append(message)


class LocalEngine:
    """Submit prompts, step, collect tokens."""

    def __init__(self, engine: engines.Engine, grammars: matching.Grammars | None = None) -> None:
        self.engine = engine
        self.mailbox = ListMailbox()
        self.loop = loop.Loop(engine, self.mailbox, grammars)
        self.tokens: dict[int, list[int]] = {}
        self.token_times_s: dict[int, list[float]] = {}
        self.finish_reasons: dict[int, str] = {}
        self.failures: dict[int, str] = {}
        self.failure_codes: dict[int, str] = {}
        self.logprobs: dict[int, list[core.TokenLogprobs | None]] = {}
        """Of each token, where it was asked for."""
        self.prompt_scores: dict[int, core.PromptScores] = {}
        self.cached_tokens: dict[int, int] = {}
        """Of each sequence that has had its first token."""
        self.stats: core.Stats | None = None
        """Of the last turn."""
        self._next_id = 0

    @classmethod
    def load(cls, settings: core.EngineSettings, in_force: flags.InForce | None = None) -> "LocalEngine":
        return cls(loading.load(settings, in_force or flags.defaults(), lambda _: None))

    def submit(
        self,
        prompt_token_ids: list[int],
        sampling: core.SamplingParams,
        *,
        request_class: str = "",
        priority: int = 0,
        expected_output_tokens: int | None = None,
        cache_salt: str = "",
        shared_prefix_tokens: int = 0,
    ) -> int:
        """Queue a prompt; returns its id."""
        self._next_id += 1
        self.tokens[self._next_id] = []
        self.token_times_s[self._next_id] = []
        self.logprobs[self._next_id] = []
        self.mailbox.inbox.append(
            core.Submit(
                sequence_id=self._next_id,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling,
                arrival_s=time.monotonic(),
                request_class=request_class,
                priority=priority,
                expected_output_tokens=expected_output_tokens,
                cache_salt=cache_salt,
                shared_prefix_tokens=shared_prefix_tokens,
            )
        )
        return self._next_id

    def abort(self, sequence_id: int) -> None:
        self.mailbox.inbox.append(core.Abort(sequence_id))

    def pin(self, prompts: list[list[int]]) -> None:
        self.mailbox.inbox.append(core.Pin(prompts=prompts))

    def set_flags(self, settings_json: bytes) -> core.FlagsApplied:
        """At once: between two steps."""
        return self.loop.set_flags(settings_json)

    def step(self) -> None:
        """One turn of the loop."""
        self.loop.turn()
        now = time.monotonic()
        for message in self.mailbox.outbox:
            if isinstance(message, core.StepOutput):
                self.stats = message.stats
                for token in message.tokens:
                    self.cached_tokens.setdefault(token.sequence_id, token.cached_tokens)
                    self.tokens[token.sequence_id].append(token.token_id)
                    self.token_times_s[token.sequence_id].append(now)
                    self.logprobs[token.sequence_id].append(token.logprobs)
                    if token.finish_reason:
                        self.finish_reasons[token.sequence_id] = token.finish_reason
                for failure in message.failures:
                    self.failures[failure.sequence_id] = failure.message
                    self.failure_codes[failure.sequence_id] = failure.code
                for prompt in message.prompts:
                    self.prompt_scores[prompt.sequence_id] = prompt
                    if prompt.finish_reason:
                        self.finish_reasons[prompt.sequence_id] = prompt.finish_reason
        self.mailbox.outbox.clear()

    def run(self) -> None:
        """Step until nothing is left."""
        while self.mailbox.inbox or self.loop.has_work:
            self.step()
            if not self.loop.scheduler.has_work:
                time.sleep(COMPILING_PAUSE_S)  # leave the processor to the compiler of grammars

    def score(self, prompt_token_ids: list[int], num_top: int = 0) -> list[core.TokenLogprobs | None]:
        """Logprobs of a prompt; nothing is generated."""
        sampling = core.SamplingParams(max_tokens=0, prompt_logprobs=num_top)
        sequence_id = self.submit(prompt_token_ids, sampling)
        self.run()
        return self.prompt_scores[sequence_id].scores

    def generate(self, prompts: list[list[int]], sampling: core.SamplingParams) -> list[list[int]]:
        """Outputs of all prompts, in their order, computed together."""
        ids = [self.submit(prompt, sampling) for prompt in prompts]
        self.run()
        return [self.tokens[sequence_id] for sequence_id in ids]
