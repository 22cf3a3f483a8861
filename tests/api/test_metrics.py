import ast
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from firsttoken_api import exposition, metrics
from firsttoken_api.metrics import Kind, Owner


def test_names_are_unique_and_ours_or_vllms() -> None:
    assert len(metrics.BY_NAME) == len(metrics.METRICS) > 30
    for metric in metrics.METRICS:
        assert metric.name.startswith(("firsttoken_", "vllm:")), metric.name
        assert metric.kind is not Kind.COUNTER or not metric.name.endswith("_total"), "the exposition adds it"
        assert metric.name.startswith("firsttoken_") or metric.owner is Owner.ENGINE
        assert all(re.fullmatch("[a-z_]+", label) for label in metric.labels)
        assert metric.help


def test_units_are_in_the_names() -> None:
    for metric in metrics.METRICS:
        if metric.unit == "seconds":
            assert metric.name.endswith("_seconds"), metric.name


def test_histograms_and_only_they_have_buckets() -> None:
    for metric in metrics.METRICS:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_every_metric_belongs_to_one_process() -> None:
    assert sum(len(metrics.of(owner)) for owner in Owner) == len(metrics.METRICS)


def test_a_process_can_export_its_rows() -> None:
    for owner in Owner:
        registry = CollectorRegistry()
        for metric in metrics.of(owner):
            made = getattr(exposition, metric.kind.value)(metric, registry)
            if metric.labels:
                made.labels(*("x" for _ in metric.labels))
        text = generate_latest(registry).decode()
        for metric in metrics.of(owner):
            assert f"# TYPE {metric.exposed_name} {metric.kind.value}" in text


ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    Owner.ENGINE: ROOT / "runtime/firsttoken_runtime",
    Owner.SIDECAR: ROOT / "operator/firsttoken_sidecar",
    Owner.OPERATOR: ROOT / "operator/firsttoken_operator",
}


@pytest.mark.parametrize("owner", Owner)
def test_every_row_is_exported_by_its_process(owner: Owner) -> None:
    used = {
        node.attr
        for path in FOLDERS[owner].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    rows = {name for name, row in vars(metrics).items() if row in metrics.of(owner)}
    assert len(rows) == len(metrics.of(owner))
    assert rows - used == set()
