"""The page of metrics."""

from firsttoken_api import metrics
from firsttoken_api.metrics import Metric, Owner
from firsttoken_api.reference.markdown import code, table

_WHERE = {
    Owner.ENGINE: "The engine's ops port 9000, inside the pod; the sidecar exports them again on port 9090.",
    Owner.SIDECAR: "The sidecar's ops port 9090, `/metrics`.",
    Owner.OPERATOR: "The operator's port 8081, `/metrics`.",
}


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(code(label) for label in metric.labels)
    return (code(metric.exposed_name), metric.kind, labels, metric.unit, metric.help)


def page() -> str:
    """docs/reference/metrics.md."""
    parts = ["# Metrics\n\nNames that begin with `vllm:` mean what they mean in vLLM.\n"]
    for owner, where in _WHERE.items():
        rows = table(("name", "type", "labels", "unit", "meaning"), map(_row, metrics.of(owner)))
        parts.append(f"\n## {owner.capitalize()}\n\n{where}\n\n{rows}")
    return "".join(parts)
