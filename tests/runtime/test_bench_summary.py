import pytest

from firsttoken_runtime.bench import summary
from runtime.bench_results import failed, record, round_


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([3.0], 99, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.5),
        ([float(n) for n in range(101)], 95, 95.0),
        ([0.0, 10.0], 99, 9.9),
    ],
)
def test_percentiles_interpolate(values, percent, expected):
    assert summary.percentile(values, percent) == (None if expected is None else pytest.approx(expected))


def test_rounds_are_taken_together_and_errors_are_in_no_percentile():
    rounds = [
        round_("a", [1.0, 2.0], duration_s=4.0),
        round_("a", [3.0], repeat=1, duration_s=6.0, records=(record(3.0), failed())),
    ]
    found = summary.figures(rounds)
    assert (found.requests, found.errors) == (4, 1)
    assert (found.ttft_p50_s, found.ttft_p99_s) == pytest.approx((2.0, 2.98))
    assert found.requests_per_s == pytest.approx(0.3)
    assert found.output_tokens_per_s == pytest.approx(3.3)
    assert found.tpot_p95_s == pytest.approx(0.1)
    assert found.longest_gap_s == pytest.approx(0.2)
    assert (found.kv_use, found.kv_waste, found.preemptions) == (None, None, None)


def test_kv_figures_are_weighted_by_slot_seconds():
    rounds = [
        round_("a", [1.0], slots=summary.Slots(80.0, 95.0, 100.0), preemptions=2),
        round_("a", [1.0], slots=summary.Slots(290.0, 299.0, 300.0), preemptions=1),
    ]
    found = summary.figures(rounds)
    assert (found.kv_use, found.kv_waste) == pytest.approx((370 / 400, 6 / 400))
    assert found.preemptions == 3
    nothing_waited = summary.figures([round_("a", [1.0], slots=summary.Slots(0.0, 0.0, 0.0))])
    assert nothing_waited.kv_use is None


def test_one_round_without_counters_makes_them_unknown():
    rounds = [round_("a", [1.0], slots=summary.Slots(1, 1, 1), preemptions=1), round_("a", [1.0])]
    assert (summary.figures(rounds).kv_use, summary.figures(rounds).preemptions) == (None, None)


def test_groups_and_errors():
    rounds = [
        round_(
            "a", [], records=(record(1.0, group="short"), record(9.0, group="long"), failed("x"), failed("x"))
        )
    ]
    assert summary.groups(rounds) == ["short", "long", ""]
    assert summary.figures(rounds, "short").ttft_p99_s == 1.0
    assert summary.errors(rounds) == {"x": 2}
    assert summary.groups([round_("a", [1.0])]) == []


def test_no_rounds_have_no_figures():
    found = summary.figures([])
    assert (found.requests, found.requests_per_s, found.ttft_p50_s, found.longest_gap_s) == (
        0,
        0.0,
        None,
        None,
    )


def test_what_was_found_is_told_by_usage_and_by_the_counter():
    reuse = summary.Reuse(30.0, {"device": 16.0, "host": 4.0})
    records = (
        record(1.0, group="first", cached_tokens=0),
        record(1.0, group="later", cached_tokens=5),
        record(1.0, group="later", cached_tokens=3),
    )
    found = summary.figures([round_("a", [], records=records, reuse=reuse)], "later")
    assert (found.least_cached_tokens, found.counted_cached_tokens, found.computed_tokens) == (3, 10.0, 3.0)
    everything = summary.figures([round_("a", [], records=records, reuse=reuse)])
    assert (everything.least_cached_tokens, everything.computed_tokens) == (0, (21 - 8) / 3)
    assert everything.prompt_tokens_per_s == pytest.approx(2.1)
    silent = summary.figures([round_("a", [1.0])])
    assert (silent.least_cached_tokens, silent.counted_cached_tokens, silent.computed_tokens) == (None,) * 3


def test_tiers_are_added_and_taken_away():
    one, other = summary.Reuse(10.0, {"device": 6.0}), summary.Reuse(4.0, {"device": 1.0, "host": 2.0})
    assert (one + other).found == {"device": 7.0, "host": 2.0}
    assert (one + other - other).total == 6.0
    assert (one - other).looked_up == 6.0
