"""Figures of what the clients saw. Pure.

TTFT runs from the moment a request is sent (open loop: was due) to its first byte of content; TPOT is the
time from there to the last content, divided by the tokens after the first. A request that failed counts
as an error and in no percentile.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerTiming:
    """The TTFT of one request as its server measured it, in the server's own words. Milliseconds."""

    ttft_ms: float
    stages_ms: Mapping[str, float]
    """In the order in which a request passes them."""


@dataclass(frozen=True)
class Door:
    """What a sidecar said when it let a request in or turned it away."""

    status: int
    answered_s: float
    """From sending to the head of the answer."""
    retry_after_s: float | None = None
    ttft_ms: float | None = None
    """What it expected; None: it did not say."""
    p90_ms: float | None = None
    """The same with its own past errors: what it held against the limit."""
    limit_ms: float | None = None


@dataclass(frozen=True)
class Record:
    """One request as its client saw it. Times in seconds from the start of the load."""

    group: str
    prompt_tokens: int
    output_tokens: int
    start_s: float
    end_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    """None where only one token was generated."""
    longest_gap_s: float = 0.0
    """Between two pieces of content."""
    error: str = ""
    server_timing: ServerTiming | None = None
    """Where it was asked for."""
    cached_tokens: int | None = None
    """Of the prompt, as its usage says; None: it says nothing."""
    text_digest: str = ""
    """Tells whether two answers are the same."""
    door: Door | None = None
    """Where it was asked for."""


@dataclass(frozen=True)
class Slots:
    """Use of the KV memory while at least one request waited, in slot-seconds."""

    live: float
    needed: float
    allocated: float

    def __add__(self, other: "Slots") -> "Slots":
        return Slots(self.live + other.live, self.needed + other.needed, self.allocated + other.allocated)

    def __sub__(self, other: "Slots") -> "Slots":
        return Slots(self.live - other.live, self.needed - other.needed, self.allocated - other.allocated)


@dataclass(frozen=True)
class Reuse:
    """What the server counted of its prefix cache, in tokens."""

    looked_up: float
    found: Mapping[str, float]
    """By tier."""

    @property
    def total(self) -> float:
        return sum(self.found.values())

    def __add__(self, other: "Reuse") -> "Reuse":
        return self._combined(other, 1)

    def __sub__(self, other: "Reuse") -> "Reuse":
        return self._combined(other, -1)

    def _combined(self, other: "Reuse", sign: int) -> "Reuse":
        tiers = dict.fromkeys((*self.found, *other.found))
        found = {tier: self.found.get(tier, 0.0) + sign * other.found.get(tier, 0.0) for tier in tiers}
        return Reuse(self.looked_up + sign * other.looked_up, found)


@dataclass(frozen=True)
class Round:
    """One variant under the whole load, once."""

    variant: str
    repeat: int
    duration_s: float
    records: tuple[Record, ...]
    slots: Slots | None = None
    """None: the server does not export it."""
    preemptions: int | None = None
    is_complete: bool = True
    """False: the time was up before the load was through."""
    send_delay_s: float = 0.0
    """Open loop: most that a request was sent after it was due."""
    reuse: Reuse | None = None
    """None: the server does not export it."""


@dataclass(frozen=True)
class Figures:
    """One variant, one group of requests. Times in seconds; None: nothing to measure."""

    requests: int
    errors: int
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    longest_gap_s: float | None
    requests_per_s: float
    output_tokens_per_s: float
    kv_use: float | None
    kv_waste: float | None
    preemptions: int | None
    least_cached_tokens: int | None
    """Of any request, as its usage says."""
    counted_cached_tokens: float | None
    """Found by the server in all rounds, for each of these requests."""
    computed_tokens: float | None
    """Prompt tokens that were not found in the cache, mean of a request, as usages say."""
    prompt_tokens_per_s: float
    """Of answered requests, whether computed or found."""


def percentile(values: Iterable[float], percent: float) -> float | None:
    """With linear interpolation between the two nearest values; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = (len(ordered) - 1) * percent / 100
    below, above = math.floor(place), math.ceil(place)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def figures(rounds: Sequence[Round], group: str | None = None) -> Figures:
    """Of all rounds together; `group` None = all requests. KV figures are the variant's in either case."""
    chosen = [one for round_ in rounds for one in round_.records if group in (None, one.group)]
    good = [one for one in chosen if not one.error]
    duration_s = sum(round_.duration_s for round_ in rounds)
    ttfts = [one.ttft_s for one in good if one.ttft_s is not None]
    tpots = [one.tpot_s for one in good if one.tpot_s is not None]
    slots = _sum_slots(rounds)
    reuse = _sum_reuse(rounds)
    cached = [one.cached_tokens for one in good if one.cached_tokens is not None]
    prompt_tokens = sum(one.prompt_tokens for one in good)
    counted = [round_.preemptions for round_ in rounds if round_.preemptions is not None]
    return Figures(
        requests=len(chosen),
        errors=len(chosen) - len(good),
        ttft_p50_s=percentile(ttfts, 50),
        ttft_p90_s=percentile(ttfts, 90),
        ttft_p95_s=percentile(ttfts, 95),
        ttft_p99_s=percentile(ttfts, 99),
        tpot_p50_s=percentile(tpots, 50),
        tpot_p95_s=percentile(tpots, 95),
        longest_gap_s=max((one.longest_gap_s for one in good), default=None),
        requests_per_s=len(good) / duration_s if duration_s else 0.0,
        output_tokens_per_s=sum(one.output_tokens for one in good) / duration_s if duration_s else 0.0,
        kv_use=slots.live / slots.allocated if slots and slots.allocated else None,
        kv_waste=1 - slots.needed / slots.allocated if slots and slots.allocated else None,
        preemptions=sum(counted) if len(counted) == len(rounds) else None,
        least_cached_tokens=min(cached, default=None),
        counted_cached_tokens=reuse.total / len(good) if reuse is not None and good else None,
        computed_tokens=(
            (prompt_tokens - sum(cached)) / len(good) if good and len(cached) == len(good) else None
        ),
        prompt_tokens_per_s=prompt_tokens / duration_s if duration_s else 0.0,
    )


def _sum_reuse(rounds: Sequence[Round]) -> Reuse | None:
    total = Reuse(0.0, {})
    for round_ in rounds:
        if round_.reuse is None:
            return None
        total += round_.reuse
    return total


def _sum_slots(rounds: Sequence[Round]) -> Slots | None:
    total = Slots(0.0, 0.0, 0.0)
    for round_ in rounds:
        if round_.slots is None:
            return None
        total += round_.slots
    return total


def groups(rounds: Sequence[Round]) -> list[str]:
    """Names of the groups, in order of appearance; empty where there is only one without a name."""
    names = dict.fromkeys(one.group for round_ in rounds for one in round_.records)
    return [] if len(names) < 2 else list(names)


def errors(rounds: Sequence[Round]) -> dict[str, int]:
    """How often each error was seen, the most frequent first."""
    counts: dict[str, int] = {}
    for one in (one for round_ in rounds for one in round_.records if one.error):
        counts[one.error] = counts.get(one.error, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
