"""The operator's own metrics, as rows of `firsttoken_api.metrics`. Every series exists from the start."""

from prometheus_client import CollectorRegistry

from firsttoken_api import exposition, metrics

REASONS = ("UnreachableError", "ConflictError", "RefusedError", "TooManyRequestsError", "ApiError")
"""Why a reconcile is retried: the client's error types."""


class Metrics:
    """One set of instruments in a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reconcile = exposition.histogram(metrics.OPERATOR_RECONCILE, registry)
        self.errors = exposition.counter(metrics.OPERATOR_ERRORS, registry)
        self.queue_depth = exposition.gauge(metrics.OPERATOR_QUEUE_DEPTH, registry)
        self.queue_age = exposition.gauge(metrics.OPERATOR_QUEUE_AGE, registry)
        self.leader = exposition.gauge(metrics.OPERATOR_LEADER, registry)
        self.watch_staleness = exposition.gauge(metrics.OPERATOR_WATCH_STALENESS, registry)
        self.throttled = exposition.counter(metrics.OPERATOR_THROTTLED, registry)
        self.writes = exposition.counter(metrics.OPERATOR_WRITES, registry)
        self.scrape_failures = exposition.counter(metrics.OPERATOR_SCRAPE_FAILURES, registry)
        self.services = exposition.gauge(metrics.OPERATOR_SERVICES, registry)
        for reason in REASONS:
            self.errors.labels(reason)
        for reason in ("timeout", "connection", "content"):
            self.scrape_failures.labels(reason)

    def wrote(self, kind: str, verb: str) -> None:
        self.writes.labels(kind, verb).inc()
