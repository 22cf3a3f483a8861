import pytest
from prometheus_client import CollectorRegistry

from firsttoken_api import exposition, metrics
from firsttoken_api.metrics import Kind, Metric, Owner


def test_the_wrong_kind_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        exposition.gauge(metrics.SIDECAR_ARRIVALS, CollectorRegistry())


def test_buckets_can_lie_on_an_objective() -> None:
    registry = CollectorRegistry()
    waits = Metric("firsttoken_waits_seconds", Kind.HISTOGRAM, Owner.SIDECAR, "Waits", buckets=(1.0,))
    exposition.histogram(waits, registry, buckets=(0.1, 0.42)).observe(0.42)
    assert registry.get_sample_value("firsttoken_waits_seconds_bucket", {"le": "0.42"}) == 1
    assert registry.get_sample_value("firsttoken_waits_seconds_bucket", {"le": "0.1"}) == 0
