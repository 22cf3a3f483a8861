"""`bench overload`: four times the rate that an engine can serve, with admission and without.

Capacity is the highest rate at which the TTFT P95 of every class holds; it is looked for in the same run,
with few holds. All arrivals are open loops: a client that waits for answers cannot overload anybody. Some of
the clients that are turned away come back when they were told to; the others never do. Pure.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken_api.hot_settings import ClassSettings
from firsttoken_runtime.bench import arrivals, bars, experiment, lengths, summary, workload
from firsttoken_runtime.bench.proportion import Proportion

INTERACTIVE, BATCH = "interactive", "batch"
INTERACTIVE_SHARE = 0.2
BATCH_FACTOR = 4.0
"""The limit of batch is so many times that of interactive."""
SLO_FACTOR = 8.0
"""Of the median TTFT of a request that is alone, where no objective is given."""
HELD = 0.95
"""The share of the requests of a class that must be in time."""
PROMPT = lengths.LogNormal(median=160, sigma=0.7, low=32, high=640)
OUTPUT = lengths.LogNormal(median=12, sigma=0.5, low=4, high=32)
MAX_MODEL_LEN = 768

ABOVE, BELOW = 4.0, 0.8
"""Of capacity."""
NEAR_LIMIT = 0.2
"""Predictions so near to their limit tell whether admission is calibrated."""

CAPACITY = "capacity"
UNDER = f"{BELOW:g}x"
WITH = f"{ABOVE:g}x with admission"
WITHOUT = f"{ABOVE:g}x without"


@dataclass(frozen=True)
class Limits:
    """TTFT limits by class, in seconds."""

    interactive_s: float

    def of(self, request_class: str) -> float:
        return self.interactive_s * (BATCH_FACTOR if request_class == BATCH else 1.0)

    def classes(self) -> tuple[ClassSettings, ...]:
        """As the document declares them."""
        return (
            ClassSettings(name=INTERACTIVE, priority=10, ttft_p99_s=self.of(INTERACTIVE)),
            ClassSettings(name=BATCH, priority=0, ttft_p99_s=self.of(BATCH)),
        )


@dataclass(frozen=True)
class Attempt:
    """One request that was sent. Times in seconds from the start of the phase."""

    request_class: str
    due_s: float
    sent_s: float
    record: summary.Record
    is_retry: bool = False

    @property
    def status(self) -> int:
        """0: the answer never began."""
        return self.record.door.status if self.record.door is not None else 0

    @property
    def is_refused(self) -> bool:
        return self.status == 429

    @property
    def first_s(self) -> float | None:
        """When its first content came."""
        return None if self.record.ttft_s is None else self.due_s + self.record.ttft_s

    def is_good(self, limits: Limits) -> bool:
        """Its first token was in time; what was cut off with the phase afterwards still counts."""
        return self.record.ttft_s is not None and self.record.ttft_s <= limits.of(self.request_class)


@dataclass(frozen=True)
class Phase:
    """One rate, held for a while."""

    name: str
    rate_per_s: float
    duration_s: float
    """In which requests arrive."""
    attempts: tuple[Attempt, ...]
    planned: int
    """Arrivals, retries not among them."""
    is_cut: bool = False
    """Ended when it was clear that the objective does not hold."""
    client_cpu: float = 0.0
    """Cores that the load generator used."""


@dataclass(frozen=True)
class ClassFigures:
    """The accepted requests of one class in one phase."""

    accepted: int
    refused: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    in_time: Proportion
    """Of the accepted."""
    retries_accepted: Proportion
    """Of those that came back at their Retry-After while the load was on."""
    near_limit_breached: Proportion
    """Of the accepted that were predicted within 20 % of their limit."""


@dataclass(frozen=True)
class Figures:
    """One phase."""

    arrivals: int
    accepted: int
    """First attempts and retries."""
    refused: int
    """Of first attempts."""
    failed: int
    """Neither accepted nor refused."""
    goodput_per_s: float
    """First tokens in time, a second."""
    good_tokens_per_s: float
    """Prompt tokens of those: who admits short prompts alone has more goodput, and less of these."""
    refusal_p50_ms: float | None
    refusal_p99_ms: float | None
    retries: int
    """Came back at their Retry-After while the load was on."""
    retries_accepted: float | None
    near_limit: int
    """Accepted requests that were predicted within 20 % of their limit."""
    near_limit_breached: float | None
    late_p99_ms: float | None
    """How late the load generator sent, after a request was due."""
    late_most_ms: float | None
    classes: Mapping[str, ClassFigures]


def requests(seed: int, count: int, interactive_share: float, token_ids: range) -> list[workload.Request]:
    """Both classes have the same lengths. The longer list begins with the shorter one."""
    generator = random.Random(seed)
    made = []
    for _ in range(count):
        name = INTERACTIVE if generator.random() < interactive_share else BATCH
        shape = (PROMPT.draw(generator), OUTPUT.draw(generator))
        made += workload.requests(generator, [shape], group=name, request_class=name, token_ids=token_ids)
    return made


def times(seed: int, rate_per_s: float, duration_s: float) -> list[float]:
    """A Poisson process; another rate stretches the same one."""
    generator = random.Random(f"times/{seed}")
    most = math.ceil(rate_per_s * duration_s * 2 + 50)
    return list(
        itertools.takewhile(lambda at: at < duration_s, arrivals.poisson(generator, rate_per_s, most))
    )


def obeys(seed: int, index: int, share: float) -> bool:
    """Whether the client of a request comes back when it is told to."""
    return random.Random(f"{seed}/{index}").random() < share


@dataclass
class Search:
    """For the highest rate that holds, with few tries."""

    start_per_s: float
    holds: int
    closeness: float = 1.06
    """Near enough: the lowest rate that failed over the highest that held."""
    step: float = 1.3
    held_per_s: float = 0.0
    failed_per_s: float = math.inf
    tried: int = 0

    def next_rate(self) -> float | None:
        """None: it is found, or the tries are used up."""
        if self.tried >= self.holds:
            return None
        if self.tried == 0:
            return self.start_per_s
        if not self.held_per_s:
            return self.failed_per_s / self.step
        if math.isinf(self.failed_per_s):
            return self.held_per_s * self.step
        if self.failed_per_s / self.held_per_s <= self.closeness:
            return None
        return math.sqrt(self.held_per_s * self.failed_per_s)

    def tell(self, rate_per_s: float, is_held: bool) -> None:
        self.tried += 1
        if is_held:
            self.held_per_s = max(self.held_per_s, rate_per_s)
        else:
            self.failed_per_s = min(self.failed_per_s, rate_per_s)


def breaches_allowed(count: int) -> int:
    """Of so many requests, that P95 still holds."""
    return math.floor(count * (1 - HELD))


def is_held(attempts: Sequence[Attempt], limits: Limits) -> bool:
    """Whether every class was in time."""
    for name in (INTERACTIVE, BATCH):
        own = [one for one in attempts if one.request_class == name]
        late = sum(1 for one in own if not one.is_good(limits))
        if late > breaches_allowed(len(own)):
            return False
    return bool(attempts)


def figures(phase: Phase, limits: Limits) -> Figures:
    firsts = [one for one in phase.attempts if not one.is_retry]
    # One that never had an answer was let in, and waited.
    accepted = [one for one in phase.attempts if one.status in (0, 200)]
    refusals_ms = [
        one.record.door.answered_s * 1e3 for one in phase.attempts if one.is_refused and one.record.door
    ]
    good = [
        one
        for one in phase.attempts
        if one.is_good(limits) and one.first_s is not None and one.first_s <= phase.duration_s
    ]
    retried, breached = _returned(phase.attempts, phase.duration_s), _breached(phase.attempts, limits)
    late_ms = [(one.sent_s - one.due_s) * 1e3 for one in phase.attempts]
    return Figures(
        arrivals=len(firsts),
        accepted=len(accepted),
        refused=sum(1 for one in firsts if one.is_refused),
        failed=sum(1 for one in phase.attempts if one.status not in (0, 200, 429)),
        goodput_per_s=len(good) / phase.duration_s,
        good_tokens_per_s=sum(one.record.prompt_tokens for one in good) / phase.duration_s,
        refusal_p50_ms=summary.percentile(refusals_ms, 50),
        refusal_p99_ms=summary.percentile(refusals_ms, 99),
        retries=retried.whole,
        retries_accepted=retried.share,
        near_limit=breached.whole,
        near_limit_breached=breached.share,
        late_p99_ms=summary.percentile(late_ms, 99),
        late_most_ms=max(late_ms, default=None),
        classes={name: _class_figures(phase, name, limits) for name in (INTERACTIVE, BATCH)},
    )


def _class_figures(phase: Phase, name: str, limits: Limits) -> ClassFigures:
    own = [one for one in phase.attempts if one.request_class == name]
    # One whose first token never came waited at least until the phase was over.
    accepted = [one for one in own if not one.is_refused]
    waits_s = [
        one.record.ttft_s if one.record.ttft_s is not None else one.record.end_s - one.due_s
        for one in accepted
    ]
    return ClassFigures(
        accepted=len(accepted),
        refused=len(own) - len(accepted),
        ttft_p50_s=summary.percentile(waits_s, 50),
        ttft_p95_s=summary.percentile(waits_s, 95),
        ttft_p99_s=summary.percentile(waits_s, 99),
        in_time=Proportion(sum(1 for one in accepted if one.is_good(limits)), len(accepted)),
        retries_accepted=_returned(own, phase.duration_s),
        near_limit_breached=_breached(own, limits),
    )


def _returned(attempts: Sequence[Attempt], duration_s: float) -> Proportion:
    """Accepted, of those that came back while requests arrived."""
    retries = [one for one in attempts if one.is_retry and one.sent_s <= duration_s]
    return Proportion(sum(1 for one in retries if one.status == 200), len(retries))


def _breached(attempts: Sequence[Attempt], limits: Limits) -> Proportion:
    """Late, of the accepted that were predicted near their limit."""
    near = [one for one in attempts if one.status in (0, 200) and _is_near(one)]
    return Proportion(sum(1 for one in near if not one.is_good(limits)), len(near))


def _is_near(one: Attempt) -> bool:
    door = one.record.door
    if door is None or door.p90_ms is None or not door.limit_ms:
        return False
    return abs(door.p90_ms / door.limit_ms - 1) <= NEAR_LIMIT


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def judge(phases: Mapping[str, Phase], limits: Limits) -> list[bars.Verdict]:
    """Every bar; what was not run is not measured."""
    made = {name: figures(phase, limits) for name, phase in phases.items()}
    over, under, capacity = made.get(WITH), made.get(UNDER), made.get(CAPACITY)
    worst = None
    if over is not None:
        ratios = [
            one.ttft_p95_s / limits.of(name)
            for name, one in over.classes.items()
            if one.ttft_p95_s is not None
        ]
        worst = max(ratios, default=None)
    breached = over.near_limit_breached if over is not None else None
    return [
        bars.of_values(
            experiment.Limit(f"{WITH}: TTFT P95 of the accepted : limit of their class", at_most=1.0), worst
        ),
        bars.of_values(
            experiment.Limit(f"{WITH}: 429 in, P99 ms", at_most=50.0), over.refusal_p99_ms if over else None
        ),
        bars.of_values(
            experiment.Limit(f"{WITH}: accepted when they obey Retry-After", at_least=0.8),
            over.retries_accepted if over else None,
        ),
        bars.of_values(
            experiment.Limit(f"{WITH}: goodput : goodput at capacity", at_least=0.9),
            over.goodput_per_s / capacity.goodput_per_s
            if over is not None and capacity is not None and capacity.goodput_per_s
            else None,
        ),
        bars.of_values(
            experiment.Limit(f"{UNDER}: refused", at_most=0.005),
            _share(under.refused, under.arrivals) if under else None,
        ),
        bars.of_values(
            experiment.Limit(f"{WITH}: predicted within 20 % of the limit, breached", at_least=0.02), breached
        ),
        bars.of_values(
            experiment.Limit(f"{WITH}: predicted within 20 % of the limit, breached", at_most=0.2), breached
        ),
    ]
