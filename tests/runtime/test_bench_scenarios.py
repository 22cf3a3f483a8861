import collections

import pytest

from firsttoken_runtime.bench import experiment, scenarios

ALL = [scenarios.priority(1), scenarios.chunked(1), scenarios.length(1), scenarios.tpot(1, objective_s=0.05)]


@pytest.mark.parametrize("wanted", ALL, ids=lambda wanted: wanted.name)
def test_an_experiment_is_consistent(wanted: experiment.Experiment):
    names = [variant.name for variant in wanted.variants]
    groups = {request.group for lane in wanted.lanes for request in lane.requests}
    assert len(set(names)) == len(names) >= 2
    for bar in wanted.bars:
        assert bar.variant in names
        assert bar.against in ("", *names)
        assert bar.group is None or bar.group in groups
    for lane in wanted.lanes:
        for request in lane.requests:
            longest = len(request.prompt_token_ids) + (request.output_tokens or 1)
            assert longest < wanted.server.max_model_len
            assert longest <= wanted.server.kv_tokens
    for variant in wanted.variants:
        classes = {each.name for each in variant.classes}
        asked = {request.request_class for lane in wanted.lanes for request in lane.requests} - {""}
        assert asked <= classes
        assert not classes or variant.default_class in classes


def test_priority_differs_in_the_flag_alone():
    off, on = scenarios.priority(1).variants
    assert set(on.flags_on) - set(off.flags_on) == {"priority"}
    assert off.classes == on.classes


def test_shares_are_exact():
    counts = collections.Counter(one.group for one in scenarios.priority(1, 500).lanes[0].requests)
    assert counts == {"interactive": 50, "batch": 450}
    counts = collections.Counter(one.group for one in scenarios.chunked(1, 100).lanes[0].requests)
    assert counts == {"long": 20, "short": 80}
    counts = collections.Counter(one.group for one in scenarios.length(1, 200).lanes[0].requests)
    assert counts == {"no limit": 16, "longer": 8, "short": 176}


def test_only_the_last_variant_of_length_limits_anything():
    limits = [variant.classes[0].max_tokens for variant in scenarios.length(1).variants]
    assert limits == [None, None, scenarios.LIMIT_TOKENS]
    assert any(one.output_tokens is None for one in scenarios.length(1).lanes[0].requests)


def test_tpot_is_calibrated_without_prompts_and_measured_with_them():
    alone = scenarios.tpot(1, 12)
    assert [lane.is_background for lane in alone.lanes] == [False]
    assert alone.bars == ()
    loaded = scenarios.tpot(1, 12, objective_s=0.05)
    assert [lane.is_background for lane in loaded.lanes] == [False, True]
    assert [variant.settings(1).objective.tpot_p95_s for variant in loaded.variants] == [None, 0.05]
