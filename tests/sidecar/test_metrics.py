import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import objectives as builders
from builders import openmetrics
from firsttoken_api import metrics as table
from firsttoken_sidecar import metrics, timing


def collector(counts: metrics.Counts, ledger: timing.Ledger) -> metrics.SidecarCollector:
    gauges = metrics.Gauges(
        now_s=5.0,
        in_flight=1,
        connections=4,
        is_ready=True,
        is_draining=False,
        is_engine_up=True,
        flags_generation=9,
        peers=3,
    )
    return metrics.SidecarCollector(counts, ledger, lambda: gauges)


def exposed(
    counts: metrics.Counts, ledger: timing.Ledger
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, content_type = metrics.exposition(collector(counts, ledger), b"")
    assert content_type == metrics.CONTENT_TYPE
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_exactly_the_table_is_exported_with_its_kinds_and_help() -> None:
    families = {family.name: family for family in collector(metrics.Counts(), timing.Ledger()).collect()}
    rows = {row.name: row for row in table.of(table.Owner.SIDECAR)}
    assert families.keys() == rows.keys()
    for name, family in families.items():
        row = rows[name]
        assert (family.type, family.documentation) == (row.kind, row.help)
        assert family.samples, "every series exists from the start"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(row.labels)


def test_counts_show() -> None:
    counts = metrics.Counts()
    counts.answered(200)
    counts.answered(204)
    counts.answered(503)
    counts.engine_errors[metrics.EngineErrorReason.NOT_THERE] += 1
    samples = exposed(counts, timing.Ledger())
    assert samples["firsttoken_answers_total", (("status", "2xx"),)] == 2
    assert samples["firsttoken_answers_total", (("status", "5xx"),)] == 1
    assert samples["firsttoken_engine_errors_total", (("reason", "not_there"),)] == 1
    assert samples["firsttoken_engine_errors_total", (("reason", "mid_answer"),)] == 0
    assert samples["firsttoken_flags_generation", ()] == 9


def test_the_histogram_has_an_edge_at_the_objective_which_moves_with_it() -> None:
    ledger = timing.Ledger()
    ledger.set_settings(builders.settings(0.37))
    for ttft_s in (0.37, 0.38, 3000.0):
        request = ledger.open(0.0)
        request.streamed = True
        ledger.first_content(request, ttft_s)
    ledger.open(4.0)
    samples = exposed(metrics.Counts(), ledger)
    streamed = (("streamed", "true"), ("tenant", ""))

    def bucket(le: str) -> float | None:
        return samples.get(("firsttoken_ttft_seconds_bucket", (("class", ""), ("le", le), *streamed)))

    assert (bucket("0.25"), bucket("0.37"), bucket("0.5"), bucket("+Inf")) == (0, 1, 2, 3)
    assert samples["firsttoken_ttft_seconds_count", (("class", ""), *streamed)] == 3
    assert samples["firsttoken_objective_seconds", (("class", ""),)] == 0.37
    assert samples["firsttoken_overdue", (("class", ""),)] == 1
    assert samples["firsttoken_breaches_total", (("class", ""),)] == 3
    ledger.set_settings(builders.settings(0.25))
    samples = exposed(metrics.Counts(), ledger)
    assert bucket("0.37") is None
    assert bucket("0.25") == 0


def of_engine() -> bytes:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("vllm:prompt_tokens", "Tokens", ["engine"], registry=registry).labels("0").inc(
        3
    )
    return prometheus_client.generate_latest(registry)


@pytest.mark.parametrize("engine", [b"", of_engine()])
def test_openmetrics_has_the_same_and_the_traces(engine: bytes) -> None:
    ledger = timing.Ledger()
    ledger.first_content(ledger.open(0.0, trace_id="ab" * 16), 0.03)
    made = collector(metrics.Counts(), ledger)
    text, content_type = metrics.exposition(made, engine, is_openmetrics=True)
    assert content_type.startswith("application/openmetrics-text")
    plain, _ = metrics.exposition(made, engine)
    families = openmetrics.families(text)

    def values(found: list[prometheus_client.Metric]) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in found
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    assert values(families) == values(list(text_string_to_metric_families(plain.decode())))
    (exemplar,) = [s.exemplar for family in families for s in family.samples if s.exemplar]
    assert exemplar.labels == {"trace_id": "ab" * 16}
