"""`bench stages`: where the time to the first token goes, as the server says, and what only its client sees.

Every request asks the server for its own timing. Two loads, one client and eight, take turns. Through a
sidecar, which is the server then, there is one client only: what a sidecar counts can be told apart only of
requests that come one by one. Held against bars: the stages of each request add up to its TTFT, and what
passes between client and server outside of them (sending, the network, reading) is small. Pure.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import summary, workload

ALONE = "alone"
LOADS = {ALONE: 1, "8 clients": 8}
"""Name -> clients."""
SIDECAR_LOADS = {ALONE: 1}
"""Those that a sidecar can say the stages of."""
PROMPT_TOKENS = (64, 256)
OUTPUT_TOKENS = 8
MOST_DIFFERENCE_MS = 1e-6
"""Between the sum of the stages and the TTFT of a request: rounding."""
MOST_UNSEEN_MS = 5.0
"""Between the TTFT of the client and that of the server."""
IDLE = 0.05
"""Cores. A client whose core others use more has no P99 to be judged by."""


@dataclass(frozen=True)
class Sample:
    """One load, one repeat."""

    round: summary.Round
    client_core_load: float = 0.0
    """Cores that others used meanwhile, of the client's one. A sidecar beside the client is none of them."""
    server_core_load: float = 0.0
    """Of the server's."""


@dataclass(frozen=True)
class Spread:
    """Of one quantity over requests. Milliseconds."""

    mean_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Figures:
    """One load. The means of the stages add up to that of the server's TTFT."""

    requests: int
    errors: int
    stages: dict[str, Spread]
    server: Spread
    client: Spread
    unseen: Spread
    """TTFT of the client minus that of the server, request by request."""
    largest_difference_ms: float
    """Between the sum of a request's stages and its TTFT."""


@dataclass(frozen=True)
class Verdict:
    """One bar of one load."""

    load: str
    text: str
    at_most_ms: float
    value_ms: float | None
    singles_ms: tuple[float, ...] = ()
    """Of the repeats, each by itself."""
    not_judged: str = ""
    """Why, where it is not."""

    @property
    def is_reached(self) -> bool | None:
        """None: not measured or not judged."""
        return None if self.value_ms is None or self.not_judged else self.value_ms <= self.at_most_ms


def loads(through_sidecar: bool) -> dict[str, int]:
    """Name -> clients."""
    return SIDECAR_LOADS if through_sidecar else LOADS


def server(through_sidecar: bool) -> str:
    """Whom the client asks, and whose stages are told."""
    return "sidecar" if through_sidecar else "server"


def lane(
    seed: int, repeat: int, load: str, requests: int, token_ids: range = workload.SAFE_TOKEN_IDS
) -> workload.Lane:
    """The same lengths and number of requests for each load, prompts that no other round has."""
    lengths = random.Random(f"{seed}/{repeat}")
    shapes = [(lengths.randint(*PROMPT_TOKENS), OUTPUT_TOKENS) for _ in range(requests)]
    made = workload.requests(random.Random(f"{seed}/{repeat}/{load}"), shapes, token_ids=token_ids)
    return workload.closed(made, LOADS[load])


def figures(samples: Sequence[Sample]) -> Figures | None:
    """Of all of them together; None where no request was answered."""
    records = [record for one in samples for record in one.round.records]
    timed = list(_timed(records))
    if not timed:
        return None
    names = dict.fromkeys(name for timing, _ in timed for name in timing.stages_ms)
    return Figures(
        requests=len(records),
        errors=sum(1 for one in records if one.error),
        stages={name: _spread([timing.stages_ms.get(name, 0.0) for timing, _ in timed]) for name in names},
        server=_spread([timing.ttft_ms for timing, _ in timed]),
        client=_spread([ttft_ms for _, ttft_ms in timed]),
        unseen=_spread([ttft_ms - timing.ttft_ms for timing, ttft_ms in timed]),
        largest_difference_ms=max(
            abs(math.fsum(timing.stages_ms.values()) - timing.ttft_ms) for timing, _ in timed
        ),
    )


def judge(samples: Sequence[Sample], through_sidecar: bool = False) -> list[Verdict]:
    verdicts = []
    whose = server(through_sidecar)
    for load in loads(through_sidecar):
        own = of(samples, load)
        whole = figures(own)
        singles = [made for one in own if (made := figures([one]))]
        verdicts += [
            Verdict(
                load,
                f"sum of the stages against the {whose}'s TTFT, largest difference",
                MOST_DIFFERENCE_MS,
                whole.largest_difference_ms if whole else None,
                tuple(one.largest_difference_ms for one in singles),
            ),
            Verdict(
                load,
                f"client's TTFT minus {whose}'s, P50",
                MOST_UNSEEN_MS,
                whole.unseen.p50_ms if whole else None,
                tuple(one.unseen.p50_ms for one in singles),
            ),
            Verdict(
                load,
                f"client's TTFT minus {whose}'s, P99",
                MOST_UNSEEN_MS,
                whole.unseen.p99_ms if whole else None,
                tuple(one.unseen.p99_ms for one in singles),
                _disturbance(own),
            ),
        ]
    return verdicts


def of(samples: Sequence[Sample], load: str) -> list[Sample]:
    return [one for one in samples if one.round.variant == load]


def _disturbance(samples: Sequence[Sample]) -> str:
    busiest = max((one.client_core_load for one in samples), default=0.0)
    return f"others used up to {busiest:.0%} of the client's core" if busiest > IDLE else ""


def _timed(records: Sequence[summary.Record]) -> Iterator[tuple[summary.ServerTiming, float]]:
    """(what the server said, TTFT of the client in ms) of the requests that were answered."""
    for one in records:
        if not one.error and one.server_timing is not None and one.ttft_s is not None:
            yield one.server_timing, one.ttft_s * 1e3


def _spread(values_ms: Sequence[float]) -> Spread:
    p50_ms, p99_ms = (summary.percentile(values_ms, percent) for percent in (50, 99))
    assert p50_ms is not None
    assert p99_ms is not None
    return Spread(statistics.fmean(values_ms), p50_ms, p99_ms)
