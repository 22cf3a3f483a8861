"""Rows of `metrics` as prometheus_client objects, so that no process spells a name twice.

Needs prometheus_client, which every process's extra brings; the table itself needs nothing.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from firsttoken_api.metrics import Kind, Metric


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    assert metric.kind is Kind.COUNTER, metric.name
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def gauge(metric: Metric, registry: CollectorRegistry) -> Gauge:
    assert metric.kind is Kind.GAUGE, metric.name
    return Gauge(metric.name, metric.help, metric.labels, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry, buckets: tuple[float, ...] = ()) -> Histogram:
    """`buckets` replaces the table's, for edges that lie exactly on an objective."""
    assert metric.kind is Kind.HISTOGRAM, metric.name
    return Histogram(
        metric.name, metric.help, metric.labels, registry=registry, buckets=buckets or metric.buckets
    )
