"""A scheduler under load in simulated time: steps cost what a simple machine needs, nothing is computed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from firsttoken_runtime import core
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence

STEP_S = 0.020
"""Reading the weights once."""
TOKEN_S = 0.001
"""Computing one row."""


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    prompt: int
    max_tokens: int
    request_class: str = ""
    priority: int = 0
    expected: int | None = None


@dataclass
class Result:
    """What clients saw. Seconds."""

    ttft_s: dict[str, list[float]] = field(default_factory=dict)
    tpot_s: list[float] = field(default_factory=list)
    """Mean gap of each answer."""
    gaps_s: list[float] = field(default_factory=list)
    output_tokens: int = 0
    computed_tokens: int = 0
    duration_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / self.duration_s

    def p(self, quantile: float, name: str = "") -> float:
        return percentile(self.ttft_s[name], quantile)


def percentile(values: list[float], quantile: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * quantile), len(ordered) - 1)]


def step_s(step: ScheduledStep) -> float:
    return STEP_S + TOKEN_S * step.num_tokens


Draw = Callable[[random.Random, int], Request]
"""The next request of client number so and so."""


def closed_loop(
    one: scheduling.Scheduler, draw: Draw, *, clients: int, requests: int, seed: int = 1
) -> Result:
    """Each client asks again when it was answered, until so many requests are answered."""
    random_numbers = random.Random(seed)
    result = Result()
    owners: dict[int, tuple[int, Sequence]] = {}
    now = 100.0
    submitted = 0

    def ask(client: int) -> None:
        nonlocal submitted
        submitted += 1
        request = draw(random_numbers, client)
        sequence = Sequence(
            submitted,
            [1] * request.prompt,
            core.SamplingParams(max_tokens=request.max_tokens),
            now,
            request_class=request.request_class,
            priority=request.priority,
            expected_output_tokens=request.expected,
        )
        owners[submitted] = (client, sequence)
        one.submit(sequence)

    for client in range(clients):
        ask(client)
    first_at_s: dict[int, float] = {}
    last_at_s: dict[int, float] = {}
    start_s, answered = now, 0
    while one.has_work:
        step = one.schedule(now)
        assert step.work, "a step without work"
        now += step_s(step)
        result.computed_tokens += step.num_tokens
        sampled = {work.sequence.sequence_id: 1 for work in step.work if work.samples}
        for token in one.commit(step, sampled, now).tokens:
            client, sequence = owners[token.sequence_id]
            result.output_tokens += 1
            if token.times is not None:
                result.ttft_s.setdefault(sequence.request_class, []).append(now - sequence.arrival_s)
                first_at_s[token.sequence_id] = now
            else:
                result.gaps_s.append(now - last_at_s[token.sequence_id])
            last_at_s[token.sequence_id] = now
            if token.finish_reason:
                answered += 1
                if sequence.num_output_tokens > 1:
                    span_s = now - first_at_s[token.sequence_id]
                    result.tpot_s.append(span_s / (sequence.num_output_tokens - 1))
                if submitted < requests:
                    ask(client)
    one.check_integrity()
    result.duration_s = now - start_s
    return result
