import dataclasses
import json

import pytest

from firsttoken_runtime.bench import stages_plot, stages_report
from runtime.bench_results import context, failed
from runtime.test_bench_stages import sample, timed

SAMPLES = (
    sample("alone", timed(30.0, 1.0), timed(60.0, 3.0)),
    sample("8 clients", timed(90.0, 8.0), timed(120.0, 8.0)),
)


def measured(*samples, **changes) -> stages_report.Measured:
    return stages_report.Measured(samples or SAMPLES, dataclasses.replace(context(), **changes))


def test_stages_are_rows_and_loads_are_columns():
    text = stages_report.markdown(measured())
    assert "| queue | 15.00 / 15.00 / 19.90 | 35.00 / 35.00 / 39.90 |" in text
    assert "| **TTFT, server** | 45.00 / 45.00 / 59.70 | 105.00 /" in text
    assert "| client minus server | 2.00 / 2.00 / 2.98 | 8.00 / 8.00 / 8.00 |" in text
    assert "| alone | client's TTFT minus server's, P50 | at most 5 | 2 | 2 to 2 | yes |" in text
    assert "| 8 clients | client's TTFT minus server's, P50 | at most 5 | 8 | 8 to 8 | **no** |" in text
    assert "| load average before / after (1 min) | 0.10 / 1.10 |" in text
    assert "busy" not in text
    assert "core** during" not in text


def test_the_report_says_what_disturbed_it():
    disturbed = sample(
        "alone", timed(30.0), failed("HTTP 500: no"), client_core_load=0.4, server_core_load=0.3
    )
    text = stages_report.markdown(measured(disturbed, load_before=(2.5, 2.0, 1.0)))
    assert "**The machine was busy**: its load average over the minute before the run was 2.50" in text
    assert "**1 requests failed**" in text
    assert "| alone | 1 | HTTP 500: no |" in text
    assert "up to 40% of the client's core** " in text
    assert "up to 30% of the server's core** " in text
    assert "not judged: others used up to 40%" in text
    assert "| 8 clients | client's TTFT minus server's, P50 | at most 5 | – | – | not measured |" in text


def test_the_document_is_json_and_has_every_request():
    document = json.loads(json.dumps(stages_report.document(measured())))
    assert len(document["samples"][1]["round"]["records"]) == 2
    record = document["samples"][0]["round"]["records"][0]
    assert record["server_timing"] == {"ttft_ms": 30.0, "stages_ms": {"queue": 10.0, "prefill": 20.0}}
    assert [one["is_reached"] for one in document["bars"]] == [True, True, True, True, False, False]
    assert document["loads"]["alone"]["server"]["mean_ms"] == 45.0


def test_through_a_sidecar_the_stages_are_the_sidecars_and_one_client_asks():
    done = stages_report.Measured(SAMPLES[:1], context(), through_sidecar=True)
    text = stages_report.markdown(done)
    assert text.startswith(f"# {stages_report.TITLE} through a sidecar: ")
    assert "| **TTFT, sidecar** | 45.00 / 45.00 / 59.70 |" in text
    assert "| client minus sidecar | 2.00 / 2.00 / 2.98 |" in text
    assert "| alone | client's TTFT minus sidecar's, P99 | at most 5 | 2.98 | 2.98 to 2.98 | yes |" in text
    assert "8 clients" not in text
    assert "server's" not in text
    document = stages_report.document(done)
    assert document["server"] == "sidecar"
    assert [one["is_reached"] for one in document["bars"]] == [True, True, True]


def test_a_script_gets_the_figures_of_the_client_alone():
    assert stages_report.flat(measured()) == {
        "server": "server",
        "stages_minus_ttft_most_ms": pytest.approx(0.0, abs=1e-9),
        "client_minus_server_p50_ms": pytest.approx(2.0),
        "client_minus_server_p99_ms": pytest.approx(2.98),
        "client_core_others_most": 0.0,
        "requests": 2,
        "errors": 0,
        "is_complete": True,
    }
    nothing = stages_report.flat(measured(sample("alone", failed())))
    assert (nothing["client_minus_server_p99_ms"], nothing["errors"]) == (None, 1)


@pytest.mark.parametrize(("name", "start"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")])
def test_a_bar_for_each_load_that_has_answers(tmp_path, name, start):
    sizes = []
    for samples in ([sample("alone", failed())], SAMPLES[:1], SAMPLES):
        stages_plot.draw(measured(*samples), tmp_path / name)
        content = (tmp_path / name).read_bytes()
        assert content.startswith(start)
        sizes.append(len(content))
    assert sizes[0] < sizes[1] < sizes[2]
