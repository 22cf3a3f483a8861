from builders import objectives as builders
from firsttoken_api import metrics as table
from firsttoken_sidecar import series, timing
from firsttoken_sidecar.stages import Stage


def samples(ledger: timing.Ledger, row: table.Metric, now_s: float = 5.0) -> dict[tuple[str, ...], float]:
    """By suffix and label values in the row's order, then `le`."""
    (family,) = [each for each in series.collect(ledger, now_s) if each.name == row.name]
    return {
        (
            sample.name.removeprefix(row.name),
            *(sample.labels[label] for label in row.labels),
            *([sample.labels["le"]] if "le" in sample.labels else []),
        ): sample.value
        for sample in family.samples
    }


def test_by_class_and_tenant_from_the_start() -> None:
    ledger = timing.Ledger()
    ledger.set_settings(builders.settings(0.4, classes={"chat": 1.0, "batch": 8.0}))
    request = ledger.open(0.0, "batch", "acme")
    request.streamed = True
    ledger.first_content(request, 8.0)
    ledger.explained(request, 8.0, 0.0, None)
    ttft = samples(ledger, table.SIDECAR_TTFT)
    assert ttft["_bucket", "batch", "acme", "true", "7.5"] == 0
    assert ttft["_bucket", "batch", "acme", "true", "8.0"] == 1
    assert ttft["_count", "chat", "", "false"] == 0
    parts = samples(ledger, table.SIDECAR_TTFT_STAGE)
    assert parts["_sum", Stage.FORWARD, "batch"] == 8.0
    assert {key[1] for key in parts} == set(Stage)
    for row in (table.SIDECAR_TPOT, table.SIDECAR_ITL):
        assert samples(ledger, row)["_count", "chat", ""] == 0


def test_counts_by_class() -> None:
    ledger = timing.Ledger()
    ledger.set_settings(builders.settings(0.4, classes={"chat": 1.0, "batch": 8.0}))
    ledger.open(4.0, "chat")
    ledger.refused(ledger.open(4.9, "batch"), 4.9)
    ledger.close(ledger.open(4.9, "batch"), 4.95)
    expected = {
        table.SIDECAR_ARRIVALS: (1, 2),
        table.SIDECAR_REJECTED: (0, 1),
        table.SIDECAR_BREACHES: (1, 1),
        table.SIDECAR_UNDECIDED: (0, 1),
    }
    for row, (chat, batch) in expected.items():
        assert samples(ledger, row) == {("_total", "chat"): chat, ("_total", "batch"): batch}, row.name
    assert samples(ledger, table.SIDECAR_OVERDUE) == {("", "chat"): 1, ("", "batch"): 0}
    assert samples(ledger, table.SIDECAR_OBJECTIVE) == {("", "chat"): 0.4, ("", "batch"): 8.0}


def test_the_trace_of_a_bucket() -> None:
    ledger = timing.Ledger()
    ledger.first_content(ledger.open(0.0, trace_id="ab" * 16), 0.03)
    (family,) = [each for each in series.collect(ledger, 1.0) if each.name == table.SIDECAR_TTFT.name]
    (exemplar,) = [sample.exemplar for sample in family.samples if sample.exemplar]
    assert (exemplar.labels, exemplar.value) == ({"trace_id": "ab" * 16}, 0.03)
