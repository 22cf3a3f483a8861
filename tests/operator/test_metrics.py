"""The operator exports exactly its rows of the table, from the start."""

from prometheus_client import CollectorRegistry

from firsttoken_api import metrics as table
from firsttoken_operator import metrics


def test_exactly_the_operator_s_rows_are_exported() -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry)
    assert {family.name for family in registry.collect()} == {
        row.name for row in table.of(table.Owner.OPERATOR)
    }


def test_series_of_known_reasons_exist_before_anything_happens() -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry)
    for reason in metrics.REASONS:
        name = table.OPERATOR_ERRORS.exposed_name
        assert registry.get_sample_value(name, {"reason": reason}) == 0.0


def test_writes_are_counted_by_kind_and_verb() -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry).wrote("Service", "apply")
    labels = {"kind": "Service", "verb": "apply"}
    assert registry.get_sample_value(table.OPERATOR_WRITES.exposed_name, labels) == 1.0
