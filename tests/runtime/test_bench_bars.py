import pytest

from firsttoken_runtime.bench import bars, experiment
from runtime.bench_results import record, round_

RATIO = experiment.Bar("ratio", "ttft_p50_s", "on", "off", at_most=0.5)


def test_a_ratio_has_the_spread_of_its_repeats():
    rounds = [
        round_("off", [4.0], repeat=0),
        round_("on", [1.0], repeat=0),
        round_("off", [4.0], repeat=1),
        round_("on", [3.0], repeat=1),
    ]
    (verdict,) = bars.judge([RATIO], rounds)
    assert (verdict.value, verdict.lowest, verdict.highest) == pytest.approx((0.5, 0.25, 0.75))
    assert verdict.is_reached is True


@pytest.mark.parametrize(("value", "is_reached"), [(0.88, True), (0.879, False)])
def test_a_limit_counts_as_reached(value, is_reached):
    assert experiment.Bar("use", "kv_use", "on", at_least=0.88).is_reached(value) is is_reached


def test_what_was_not_measured_is_neither_reached_nor_missed():
    rounds = [round_("on", [1.0])]
    verdicts = bars.judge([RATIO, experiment.Bar("use", "kv_use", "on", at_least=0.9)], rounds)
    assert [(one.value, one.is_reached) for one in verdicts] == [(None, None), (None, None)]


def test_a_bar_may_be_about_one_group():
    rounds = [
        round_("off", [], records=(record(8.0, group="a"), record(1.0, group="b"))),
        round_("on", [], records=(record(2.0, group="a"), record(1.0, group="b"))),
    ]
    bar = experiment.Bar("a only", "ttft_p99_s", "on", "off", group="a", at_most=0.3)
    assert bars.judge([bar], rounds)[0].value == pytest.approx(0.25)


def test_a_bar_has_one_limit():
    with pytest.raises(AssertionError):
        experiment.Bar("none", "kv_use", "on")
