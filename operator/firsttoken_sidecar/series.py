"""The ledger as metric families: what requests waited for, by class and tenant."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar

from firsttoken_api import metrics as table
from firsttoken_sidecar import stages, timing
from firsttoken_sidecar.class_ledger import ClassLedger
from firsttoken_sidecar.histograms import Family, Histogram, Labels

Bucket = tuple[str, float] | tuple[str, float, Exemplar]


def collect(ledger: timing.Ledger, now_s: float) -> Iterator[Metric]:
    """All of them; series without a tenant exist from the start."""
    names = [each.objective.name for each in ledger.classes]
    yield _histogram(table.SIDECAR_TTFT, ledger.ttft, [(n, "", s) for n in names for s in ("true", "false")])
    yield _histogram(table.SIDECAR_TTFT_STAGE, ledger.stages, [(s, n) for s in stages.Stage for n in names])
    yield _histogram(table.SIDECAR_TPOT, ledger.tpot, [(n, "") for n in names])
    yield _histogram(table.SIDECAR_ITL, ledger.itl, [(n, "") for n in names])
    overdue = _gauge(table.SIDECAR_OVERDUE, ledger, lambda each: each.overdue(now_s))
    yield _counter(table.SIDECAR_ARRIVALS, ledger, lambda each: each.arrivals_total)
    yield _counter(table.SIDECAR_REJECTED, ledger, lambda each: each.rejected_total)
    yield _counter(table.SIDECAR_BREACHES, ledger, lambda each: each.breaches_total)
    yield _counter(table.SIDECAR_UNDECIDED, ledger, lambda each: each.undecided_total)
    yield overdue
    yield _gauge(table.SIDECAR_OBJECTIVE, ledger, lambda each: each.objective.limit_s or 0.0)
    yield CounterMetricFamily(
        table.SIDECAR_DEMAND.name, table.SIDECAR_DEMAND.help, value=ledger.demand.tokens_total
    )


def _counter(
    row: table.Metric, ledger: timing.Ledger, value: Callable[[ClassLedger], float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(row.name, row.help, labels=row.labels)
    for each in ledger.classes:
        family.add_metric([each.objective.name], value(each))
    return family


def _gauge(
    row: table.Metric, ledger: timing.Ledger, value: Callable[[ClassLedger], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(row.name, row.help, labels=row.labels)
    for each in ledger.classes:
        family.add_metric([each.objective.name], value(each))
    return family


def _histogram(row: table.Metric, family: Family, from_the_start: list[Labels]) -> HistogramMetricFamily:
    shown = HistogramMetricFamily(row.name, row.help, labels=row.labels)
    for labels in from_the_start:
        family.of(labels)
    for labels, histogram in family.series.items():
        shown.add_metric(list(labels), _buckets(histogram), histogram.sum_s)
    return shown


def _buckets(histogram: Histogram) -> list[Bucket]:
    buckets: list[Bucket] = []
    below = 0
    for index, count in enumerate(histogram.counts):
        below += count
        edge = str(histogram.edges_s[index]) if index < len(histogram.edges_s) else "+Inf"
        seen = histogram.exemplars.get(index)
        if seen is None:
            buckets.append((edge, below))
        else:
            buckets.append((edge, below, Exemplar({"trace_id": seen.trace_id}, seen.value_s)))
    return buckets
