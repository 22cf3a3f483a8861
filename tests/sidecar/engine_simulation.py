"""An engine, its clients and the desk that lets them in, in simulated time. Pure and seeded.

The engine is what a small machine does with a small model: a step costs a fixed time, a time for each prompt
token and a time for each answer that runs. Its scheduler is ours in short: a token for each answer, then
prompts in order of class and aged work, cut into chunks, at most eight in a step, each in one of the slots.
"""

import bisect
import heapq
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from firsttoken_api.state import EngineState, KvState, Phase
from firsttoken_api.step_time import StepTime
from firsttoken_sidecar import admission, backlog
from firsttoken_sidecar.desk import Desk, Request

TRUE_STEP = StepTime(fixed_s=0.040, per_prefill_token_s=0.00045, per_decode_s=0.0025)
STEP_TOKENS = 512
PROMPTS_A_STEP = 8
SLOTS = 64
REPORT_EVERY_S = 0.5


@dataclass(eq=False)
class Call:
    """One request of one client."""

    at_s: float
    prompt: int
    output: int
    max_tokens: int
    tenant: str = ""
    request_class: str = ""
    priority: int = 0
    limit_s: float = 1.0
    estimated_prompt: int = 0
    """As the sidecar sees it."""
    retries: int = 0
    """How often it comes back when it is refused."""
    body: bytes = b""
    is_return: bool = False
    estimate: admission.Estimate | None = None
    reason: str = ""
    """Why it was refused."""
    ttft_s: float | None = None
    retry_after_s: int | None = None
    computed: int = 0
    generated: int = 0
    start_by_s: float = 0.0
    entry: backlog.Entry | None = None
    preemptions: int = 0

    @property
    def known(self) -> int:
        """Tokens that are to be computed before the next one."""
        return self.prompt + self.generated

    @property
    def place(self) -> tuple[int, float, float]:
        """In the engine's line; it does not change while the call waits."""
        return -self.priority, self.start_by_s, self.at_s


PLACE = operator.attrgetter("place")


@dataclass
class Result:
    """What clients saw."""

    accepted: list[Call] = field(default_factory=list)
    refused: list[Call] = field(default_factory=list)
    duration_s: float = 0.0

    def breaches(self, calls: list[Call] | None = None) -> float:
        calls = self.accepted if calls is None else calls
        return sum((one.ttft_s or 1e9) > one.limit_s for one in calls) / max(len(calls), 1)

    def percentile(self, quantile: float) -> float:
        ordered = sorted(one.ttft_s or 1e9 for one in self.accepted)
        return ordered[min(int(quantile * len(ordered)), len(ordered) - 1)]

    @property
    def goodput(self) -> float:
        """Tokens of requests that held their limit, per second."""
        good = [one for one in self.accepted if (one.ttft_s or 1e9) <= one.limit_s]
        return sum(one.prompt + one.output for one in good) / self.duration_s

    @property
    def refused_share(self) -> float:
        return len(self.refused) / max(len(self.refused) + len(self.accepted), 1)

    def near_limit(self, width: float = 0.2) -> list[Call]:
        return [
            one
            for one in self.accepted
            if one.estimate is not None and abs(one.estimate.likely_s / one.limit_s - 1) <= width
        ]

    def returned(self) -> tuple[int, int]:
        """Of those who came back as they were told: so many were let in, of so many."""
        let_in = sum(one.is_return for one in self.accepted)
        return let_in, let_in + sum(one.is_return for one in self.refused)


@dataclass(frozen=True)
class Engine:
    """How the simulated engine differs from what it says of itself."""

    step: StepTime = TRUE_STEP
    reported: StepTime = TRUE_STEP
    noise: float = 0.05
    slots: int = SLOTS
    preempts: bool = True
    """Less urgent answers make way for more urgent prompts."""


class Simulation:
    """Runs one load through one engine; `desk` None: everybody is let in."""

    def __init__(self, calls: list[Call], desk: Desk | None, engine: Engine, seed: int = 1) -> None:
        self._desk = desk
        self._engine = engine
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Call]] = []
        self._count = 0
        for call in calls:
            self._push(call)
        self._waiting: list[Call] = []
        """In order of their places: under overload there are thousands, and a step looks at a few."""
        self._prefilling: list[Call] = []
        self._decoding: list[Call] = []
        self._tpot_s = 0.0
        self._reported_s = -1.0
        self.result = Result()

    def run(self, until_s: float) -> Result:
        """Clients ask until then; what was let in is finished."""
        now = 0.0
        while True:
            self._arrive(now, until_s)
            if not (self._waiting or self._prefilling or self._decoding):
                if not self._events or self._events[0][0] > until_s:
                    break
                now = max(now, self._events[0][0])
                continue
            step_s, prefilled = self._step()
            end_s = now + step_s
            self._arrive_during(now, end_s, until_s)
            now = end_s
            self._finish_step(prefilled, step_s, now)
        self.result.duration_s = until_s
        return self.result

    def _push(self, call: Call) -> None:
        self._count += 1
        heapq.heappush(self._events, (call.at_s, self._count, call))

    def _arrive_during(self, start_s: float, end_s: float, until_s: float) -> None:
        while self._events and self._events[0][0] <= min(end_s, until_s):
            self._arrive(self._events[0][0], until_s)

    def _arrive(self, now: float, until_s: float) -> None:
        self._report(now)
        while self._events and self._events[0][0] <= min(now, until_s):
            _, _, call = heapq.heappop(self._events)
            self._ask(call, max(call.at_s, 0.0), until_s)

    def _ask(self, call: Call, now: float, until_s: float) -> None:
        if self._desk is None:
            self._let_in(call)
            return
        request = Request(
            tenant=call.tenant,
            weight=1.0,
            body_hash=call.body,
            request_class=call.request_class,
            priority=call.priority,
            limit_s=call.limit_s,
            arrival_s=call.at_s,
            prompt_tokens=call.estimated_prompt or call.prompt,
            max_tokens=call.max_tokens,
        )
        answer = self._desk.decide(request, 0, now)
        call.estimate = answer.estimate
        if isinstance(answer, admission.Admitted):
            call.entry = self._desk.admit(request, 0, answer.estimate, now)
            self._let_in(call)
            return
        call.retry_after_s = self._desk.refuse(request, 0, answer, now)
        call.reason = answer.reason.value
        self.result.refused.append(call)
        again_s = now + call.retry_after_s + self._random.uniform(0, 0.1)
        if call.retries > 0 and again_s <= until_s:
            self._push(
                Call(
                    again_s,
                    call.prompt,
                    call.output,
                    call.max_tokens,
                    call.tenant,
                    call.request_class,
                    call.priority,
                    call.limit_s,
                    call.estimated_prompt,
                    call.retries - 1,
                    call.body,
                    is_return=True,
                )
            )

    def _let_in(self, call: Call) -> None:
        self.result.accepted.append(call)
        call.start_by_s = backlog.start_by_s(call.at_s, call.prompt / 1000, call.max_tokens * self._tpot_s)
        bisect.insort(self._waiting, call, key=PLACE)

    def _step(self) -> tuple[float, list[Call]]:
        budget = STEP_TOKENS - len(self._decoding)
        begun, waiting = sorted(self._prefilling, key=PLACE), self._waiting[:PROMPTS_A_STEP]
        share = max(budget // 2, 64) if len(begun) + len(waiting) > 1 else budget
        given: dict[Call, int] = {}
        has_room = True
        for call in heapq.merge(begun, waiting, key=PLACE):
            if budget <= 0 or len(given) >= PROMPTS_A_STEP:
                break
            if call not in begun:
                # Who finds no room now leaves none to those behind, who are not more urgent.
                has_room = has_room and (self._has_slot() or self._preempt(call))
                if not has_room:
                    continue
                self._waiting.remove(call)
                self._prefilling.append(call)
            given[call] = min(call.known - call.computed, share, budget)
            budget -= given[call]
        for call in given:
            extra = min(call.known - call.computed - given[call], budget)
            given[call] += extra
            budget -= extra
        for call, tokens in given.items():
            call.computed += tokens
        seconds = self._engine.step.seconds(sum(given.values()), len(self._decoding), 0)
        return seconds * self._random.lognormvariate(0, self._engine.noise), list(given)

    def _has_slot(self) -> bool:
        return len(self._prefilling) + len(self._decoding) < self._engine.slots

    def _preempt(self, call: Call) -> bool:
        """The latest answer of a less urgent class makes way, to be computed again."""
        if not self._engine.preempts:
            return False
        victims = [one for one in self._decoding if one.priority < call.priority and one.preemptions < 3]
        if not victims:
            return False
        victim = max(victims, key=lambda one: one.at_s)
        victim.preemptions += 1
        victim.computed = 0
        self._decoding.remove(victim)
        bisect.insort(self._waiting, victim, key=PLACE)
        return True

    def _finish_step(self, prefilled: list[Call], step_s: float, now: float) -> None:
        if self._decoding:
            self._tpot_s = self._tpot_s * 0.98 + step_s * 0.02 if self._tpot_s else step_s
        for call in list(self._decoding):
            call.generated += 1
            self._end_if_done(call, now)
        for call in prefilled:
            if call.computed < call.known:
                continue
            self._prefilling.remove(call)
            self._decoding.append(call)
            call.generated += 1
            if call.ttft_s is not None:
                self._end_if_done(call, now)
                continue
            call.ttft_s = now - call.at_s
            if self._desk is not None and call.entry is not None:
                self._desk.first_content(call.entry, call.prompt, now)
            self._end_if_done(call, now)

    def _end_if_done(self, call: Call, now: float) -> None:
        if call.generated < call.output:
            return
        self._decoding.remove(call)
        if self._desk is not None and call.entry is not None:
            self._desk.closed(call.entry, call.output, now)

    def _report(self, now: float) -> None:
        if self._desk is None or now < self._reported_s + REPORT_EVERY_S:
            return
        self._reported_s = now
        line = [*self._waiting, *self._prefilling]
        self._desk.hear(
            EngineState(
                phase=Phase.READY,
                step_time=self._engine.reported,
                chunk_tokens=STEP_TOKENS,
                max_prefill_batch=PROMPTS_A_STEP,
                max_num_seqs=self._engine.slots,
                prefill_tokens_per_s=1000.0,
                tpot_mean_s=self._tpot_s,
                backlog_tokens=sum(one.known - one.computed for one in line),
                decoding=len(self._decoding),
                running=len(self._decoding) + len(self._prefilling),
                waiting=len(self._waiting),
                kv=KvState(),
            ),
            now,
        )


Draw = Callable[[random.Random], tuple[int, int]]
"""Tokens of a prompt and of its answer."""


def poisson(
    rate: float,
    until_s: float,
    draw: Draw,
    *,
    seed: int,
    from_s: float = 0.0,
    limit_s: float = 1.0,
    tenant: str = "",
    request_class: str = "",
    priority: int = 0,
    retry_share: float = 0.0,
    retries: int = 1,
    prompt_error: float = 0.0,
    cut_share: float = 0.0,
) -> list[Call]:
    """Calls at random times. retry_share: of them, who come back when they are told to; prompt_error: how
    far the sidecar's count of prompt tokens is off (log-normal); cut_share: of answers that end early."""
    numbers = random.Random(seed)
    calls = []
    for at_s in _times(numbers, rate, from_s, until_s):
        prompt, output = draw(numbers)
        estimated = max(1, round(prompt * numbers.lognormvariate(0, prompt_error)))
        cut = numbers.randint(1, output) if numbers.random() < cut_share else output
        calls.append(
            Call(
                at_s,
                prompt,
                cut,
                output,
                tenant,
                request_class,
                priority,
                limit_s,
                estimated,
                retries if numbers.random() < retry_share else 0,
                numbers.randbytes(8),
            )
        )
    return calls


def _times(numbers: random.Random, rate: float, from_s: float, until_s: float) -> Iterator[float]:
    at_s = from_s + numbers.expovariate(rate)
    while at_s < until_s:
        yield at_s
        at_s += numbers.expovariate(rate)


def capacity(
    draw: Draw, *, limit_s: float, engine: Engine, seed: int, hold_s: float = 120.0, **load: object
) -> float:
    """The highest rate at which 95 % hold the limit, with everybody let in. Requests a second."""
    low, high = 0.1, 60.0
    for _ in range(9):
        rate = (low + high) / 2
        calls = poisson(rate, hold_s, draw, seed=seed, limit_s=limit_s)
        result = Simulation(calls, None, engine, seed).run(hold_s)
        if result.breaches() <= 0.05:
            low = rate
        else:
            high = rate
    return low
