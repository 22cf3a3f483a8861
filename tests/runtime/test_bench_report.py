import dataclasses
import json

from firsttoken_runtime.bench import experiment, pieces, report, result, summary
from runtime.bench_results import failed, finished, record, round_

ROUNDS = [
    round_("baseline", [1.0, 3.0], slots=summary.Slots(47, 50, 100), preemptions=1),
    round_("paged", [0.5], slots=summary.Slots(95, 99, 100), preemptions=0),
]


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_figures_change_and_bars_are_rows():
    text = report.markdown(finished(ROUNDS))
    assert lines(text, "| baseline |")[0].split(" | ")[-3:] == ["47.0%", "50.0%", "1 |"]
    assert lines(text, "| paged | -75 % |") != []
    assert "| P99 falls | at most 0.5 | 0.168 | 0.168 to 0.168 | yes |" in text
    assert "| use | at least 0.9 | 0.95 | 0.95 to 0.95 | yes |" in text
    assert "- a note" in text
    assert "Small | but whole" in text
    assert "`firsttoken bench table`" in text
    assert "failed" not in text


def test_the_table_has_the_reference_beside_it():
    text = report.markdown(finished(ROUNDS, "table"))
    assert "| paged | 500 (-75 %) | 280 (-33 %) |" in text
    assert "| fused | – | 150 (-64 %) |" in text
    assert "reference" not in report.markdown(finished(ROUNDS))


def test_a_missed_and_an_unmeasured_bar_are_said():
    rounds = [round_("baseline", [1.0]), round_("paged", [0.9])]
    text = report.markdown(finished(rounds))
    assert "| 0.9 to 0.9 | **no** |" in text
    assert "not measured" in text


def test_errors_and_a_run_that_was_cut_off_are_never_silent():
    rounds = [
        round_("baseline", [1.0], is_complete=False, send_delay_s=0.4),
        round_("paged", [], records=(record(1.0), failed("HTTP 503: a | b"))),
    ]
    text = report.markdown(finished(rounds))
    assert "**Not complete**" in text
    assert "baseline" in lines(text, "**Not complete**")[0]
    assert "up to 400 ms" in text
    assert "| paged | 1 | HTTP 503: a \\| b |" in text


def test_a_machine_that_was_busy_before_the_run_is_said():
    done = finished(ROUNDS)
    quiet, busy = (
        dataclasses.replace(done, context=dataclasses.replace(done.context, load_before=(load, 0.0, 0.0)))
        for load in (pieces.LOADED, 1.25)
    )
    assert "busy" not in report.markdown(quiet)
    assert "**The machine was busy**: its load average over the minute before the run was 1.25" in (
        report.markdown(busy)
    )
    assert "| load average before / after (1 min) | 1.25 / 1.10 |" in report.markdown(busy)


def test_groups_have_rows_of_their_own():
    records = (record(1.0, group="short"), record(9.0, group="long"))
    text = report.markdown(finished([round_("baseline", [], records=records)]))
    assert "| baseline | short | 1000 / 1000 / 1000 / 1000 |" in text
    assert "| baseline | long | 9000 " in text


def test_the_document_is_json_and_has_every_request():
    document = json.loads(json.dumps(result.document(finished(ROUNDS, "table"))))
    assert [len(one["records"]) for one in document["rounds"]] == [2, 1]
    assert document["variants"][0]["figures"]["kv_use"] == 0.47
    assert [one["is_reached"] for one in document["bars"]] == [True, True]
    assert document["context"]["machine"]["processor"] == "A CPU"
    assert document["reference"][0]["name"] == "baseline"


def test_words():
    assert [pieces.milliseconds(value) for value in (None, 0.0123, 1.25)] == ["–", "12.3", "1250"]
    assert [pieces.change(*pair) for pair in ((1, 4), (3, 1), (1, None), (None, 1), (1, 0))] == [
        "-75 %",
        "+200 %",
        "–",
        "–",
        "–",
    ]


def test_numbers_keep_the_digits_of_whole_ones():
    assert [pieces.number(value) for value in (None, 0.01234, 12.34, 1184.0)] == [
        "–",
        "0.0123",
        "12.3",
        "1,184",
    ]


def test_variants_with_loads_of_their_own_are_compared_with_their_own_base():
    variants = (
        experiment.Variant("alone, off", ()),
        experiment.Variant("alone, on", ()),
        experiment.Variant("mixed, off", (), against="mixed, off"),
        experiment.Variant("mixed, on", (), against="mixed, off"),
    )
    made = dataclasses.replace(finished(ROUNDS).experiment, variants=variants, bars=())
    records = (record(1.0, group="turns"), record(2.0, group="system"))
    reuse = summary.Reuse(40.0, {"device": 30.0, "host": 2.0})
    rounds = (
        round_("alone, off", [4.0]),
        round_("alone, on", [1.0]),
        round_("mixed, off", [], records=records),
        round_("mixed, on", [], records=records, reuse=reuse),
    )
    text = report.markdown(dataclasses.replace(finished(ROUNDS), experiment=made, rounds=rounds))
    assert "## Changes" in text
    assert lines(text, "| alone, on : alone, off | -75 % |")
    assert lines(text, "| mixed, on : mixed, off | +0 % |")
    # A group that a variant's load does not have is no row of it.
    assert lines(text, "| alone, on | turns |") == []
    assert lines(text, "| mixed, on | turns |")
    assert "| mixed, on | 14 | device 30, host 2 | – | 1 |" in text


def test_one_variant_has_no_change():
    only = dataclasses.replace(
        finished(ROUNDS).experiment, variants=(experiment.Variant("baseline", ()),), bars=()
    )
    text = report.markdown(dataclasses.replace(finished(ROUNDS), experiment=only))
    assert "Change against" not in text
    assert "## Bars" not in text
