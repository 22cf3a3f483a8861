"""The sidecar's metrics: what only ever grows is counted here, the rest is read from the parts at scrape.

Names, kinds and help come from `firsttoken_api.metrics`. Every series exists from the start with 0, so
that absent never means zero.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from firsttoken_api import metrics as table
from firsttoken_sidecar import (
    admission,
    admission_counts,
    openmetrics,
    route_counts,
    routing,
    series,
    timing,
)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
LabelT = TypeVar("LabelT", bound=str)
STATUSES = ("2xx", "3xx", "4xx", "5xx")


class EngineErrorReason(StrEnum):
    """How the engine failed a request."""

    NOT_THERE = "not_there"
    """No connection, after the retries."""
    BEFORE_ANSWER = "before_answer"
    MID_ANSWER = "mid_answer"


class RefusalReason(StrEnum):
    """Why the sidecar did not pass a request on."""

    DRAINING = "draining"
    UNKNOWN_PATH = "unknown_path"
    TOO_LARGE = "too_large"
    BROKEN_BODY = "broken_body"
    """Malformed, or the client stopped sending."""
    UNAUTHORIZED = "unauthorized"
    KEYS_UNAVAILABLE = "keys_unavailable"
    RATE_LIMITED = "rate_limited"
    OBJECTIVE = "objective"
    """Its first token would have come too late."""
    MEMORY = "memory"
    """Too many bodies at once."""
    MALFORMED = "malformed"
    """What came is not HTTP, or its head is too large or too slow."""
    CONNECTIONS = "connections"
    """One of too many connections; the one that was idle longest, if there was one."""


class FlagsErrorReason(StrEnum):
    """Why flags were not put in force."""

    DOCUMENT = "document"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass
class Counts:
    """What has happened since the start."""

    answers: Counter[str] = field(default_factory=Counter)
    engine_errors: Counter[EngineErrorReason] = field(default_factory=Counter)
    refusals: Counter[RefusalReason] = field(default_factory=Counter)
    flags_errors: Counter[FlagsErrorReason] = field(default_factory=Counter)
    flags_applied: int = 0
    keys_loaded: int = 0
    keys_errors: int = 0
    disconnects: int = 0
    joined: int = 0
    admission: admission_counts.AdmissionCounts = field(default_factory=admission_counts.AdmissionCounts)
    routes: route_counts.RouteCounts = field(default_factory=route_counts.RouteCounts)

    def answered(self, status: int) -> None:
        self.answers[f"{status // 100}xx"] += 1


@dataclass(frozen=True)
class Gauges:
    """How things are now."""

    now_s: float
    """On the clock of the ledger."""
    in_flight: int
    connections: int
    is_ready: bool
    is_draining: bool
    is_engine_up: bool
    flags_generation: int
    peers: int
    """That requests may be sent to."""


class SidecarCollector(Collector):
    """All of the sidecar's metric families, made at scrape."""

    def __init__(self, counts: Counts, ledger: timing.Ledger, gauges: Callable[[], Gauges]) -> None:
        self._counts = counts
        self._ledger = ledger
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        now = self._gauges()
        counts = self._counts
        ledger = self._ledger
        yield from series.collect(ledger, now.now_s)
        yield _counters(table.SIDECAR_ANSWERS, STATUSES, counts.answers)
        yield _counters(table.SIDECAR_ENGINE_ERRORS, EngineErrorReason, counts.engine_errors)
        yield _counters(table.SIDECAR_REFUSALS, RefusalReason, counts.refusals)
        yield _counter(table.SIDECAR_DISCONNECTS, counts.disconnects)
        yield _counter(table.SIDECAR_JOINED, counts.joined)
        yield _counter(table.SIDECAR_FLAGS_APPLIED, counts.flags_applied)
        yield _counters(table.SIDECAR_FLAGS_ERRORS, FlagsErrorReason, counts.flags_errors)
        yield _counter(table.SIDECAR_KEYS_LOADED, counts.keys_loaded)
        yield _counter(table.SIDECAR_KEYS_ERRORS, counts.keys_errors)
        yield _counters(table.SIDECAR_ADMISSION_REFUSED, admission.Reason, counts.admission.refused)
        yield _counter(table.SIDECAR_ADMISSION_ASKED, counts.admission.asked)
        yield _counter(table.SIDECAR_ADMISSION_UNANSWERED, counts.admission.asked_in_vain)
        yield _counters(table.SIDECAR_ROUTED, routing.Reason, counts.routes.routed)
        yield _counters(
            table.SIDECAR_PEER_FAILURES, route_counts.PeerFailureReason, counts.routes.peer_failures
        )
        yield _gauge(table.SIDECAR_PEERS, now.peers)
        yield _gauge(table.SIDECAR_IN_FLIGHT, now.in_flight)
        yield _gauge(table.SIDECAR_CONNECTIONS, now.connections)
        yield _gauge(table.SIDECAR_READY, now.is_ready)
        yield _gauge(table.SIDECAR_DRAINING, now.is_draining)
        yield _gauge(table.SIDECAR_ENGINE_UP, now.is_engine_up)
        yield _gauge(table.SIDECAR_FLAGS_GENERATION, now.flags_generation)


def exposition(
    collector: SidecarCollector, of_engine: bytes, *, is_openmetrics: bool = False
) -> tuple[bytes, str]:
    """Our metrics followed by the engine's (text format 0.0.4), and the content type. The names are disjoint.

    `is_openmetrics`: in that format, which alone has exemplars.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    if is_openmetrics:
        text = openmetrics.of(registry) + openmetrics.from_text(of_engine) + openmetrics.END
        return text, openmetrics.CONTENT_TYPE
    return generate_latest(registry) + of_engine, CONTENT_TYPE


def _counter(row: table.Metric, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(row.name, row.help, value=value)


def _counters(row: table.Metric, labels: Iterable[LabelT], values: Counter[LabelT]) -> CounterMetricFamily:
    family = CounterMetricFamily(row.name, row.help, labels=row.labels)
    for label in labels:
        family.add_metric([label], values[label])
    return family


def _gauge(row: table.Metric, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(row.name, row.help, value=float(value))
