from prometheus_client.parser import text_string_to_metric_families

from firsttoken_api import metrics as table
from firsttoken_api.hot_settings import Objective
from firsttoken_sidecar import metrics, timing


def exposed(
    counts: metrics.Counts, ledger: timing.Ledger
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    gauges = metrics.Gauges(1, 2, is_ready=True, is_draining=False, is_engine_up=True, flags_generation=9)
    collector = metrics.SidecarCollector(counts, ledger, lambda: gauges)
    text = metrics.exposition(collector, b"").decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_exactly_the_table_is_exported_with_its_kinds_and_help() -> None:
    gauges = metrics.Gauges(0, 0, is_ready=False, is_draining=False, is_engine_up=False, flags_generation=0)
    collector = metrics.SidecarCollector(metrics.Counts(), timing.Ledger(), lambda: gauges)
    families = {family.name: family for family in collector.collect()}
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
    assert samples["firsttoken_overdue", ()] == 2


def test_the_histogram_has_an_edge_at_the_objective_which_moves_with_it() -> None:
    ledger = timing.Ledger()
    ledger.set_objective(Objective(ttft_p95_s=0.37))
    for ttft_s in (0.37, 0.38, 3000.0):
        request = ledger.open(0.0)
        request.streamed = True
        ledger.first_content(request, ttft_s)
    samples = exposed(metrics.Counts(), ledger)

    def bucket(le: str) -> float | None:
        return samples.get(("firsttoken_ttft_seconds_bucket", (("le", le), ("streamed", "true"))))

    assert (bucket("0.25"), bucket("0.37"), bucket("0.5"), bucket("+Inf")) == (0, 1, 2, 3)
    assert samples["firsttoken_ttft_seconds_count", (("streamed", "true"),)] == 3
    assert samples["firsttoken_ttft_seconds_count", (("streamed", "false"),)] == 0
    assert samples["firsttoken_objective_seconds", ()] == 0.37
    assert samples["firsttoken_breaches_total", ()] == 2
    ledger.set_objective(Objective(ttft_p95_s=0.25))
    samples = exposed(metrics.Counts(), ledger)
    assert bucket("0.37") is None
    assert bucket("0.25") == 0
