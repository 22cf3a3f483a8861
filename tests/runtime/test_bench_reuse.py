"""`bench prefix`, `affinity` and `tiers` as data."""

import collections

import pytest

from firsttoken_runtime.bench import affinity, experiment, reuse, sharing, tiers

ALL = [reuse.prefix(1), affinity.affinity(1), tiers.tiers(1, kv_bytes_per_token=100)]


@pytest.mark.parametrize("wanted", ALL, ids=lambda wanted: wanted.name)
def test_an_experiment_is_consistent(wanted: experiment.Experiment):
    names = [variant.name for variant in wanted.variants]
    assert len(set(names)) == len(names) >= 2
    for variant in wanted.variants:
        assert wanted.base_of(variant).name in names
        for lane in wanted.lanes_of(variant):
            for request in lane.requests:
                longest = len(request.prompt_token_ids) + (request.output_tokens or 1)
                assert longest < wanted.server.max_model_len
                assert longest <= wanted.server.kv_tokens
                assert request.shared_prefix_tokens <= len(request.prompt_token_ids)
    for bar in wanted.bars:
        for name in {bar.variant, bar.against} - {""}:
            variant = next(one for one in wanted.variants if one.name == name)
            groups = {one.group for lane in wanted.lanes_of(variant) for one in lane.requests}
            assert bar.group is None or bar.group in groups


def test_every_variant_of_a_pair_has_the_same_load_and_one_more_flag():
    off, on, mixed_off, mixed_on = reuse.prefix(1).variants
    for plain, cached in ((off, on), (mixed_off, mixed_on)):
        assert plain.lanes == cached.lanes
        assert set(cached.flags_on) - set(plain.flags_on) == {"prefix-cache"}
    off, on, control, control_on = affinity.affinity(1, max_wait="20ms").variants
    assert set(on.flags_on) - set(off.flags_on) == {"prefix-affinity"}
    assert on.params == {"prefix-affinity": {"maxWait": "20ms"}}
    assert control.lanes == control_on.lanes != ()


def test_the_system_prompt_is_as_long_as_it_is_said_and_the_bar_allows_one_block_less():
    wanted = reuse.prefix(1, count=5)
    requests = wanted.lanes[0].requests
    assert len(requests) == 6
    assert len({one.prompt_token_ids[:1200] for one in requests}) == 1
    assert len({one.prompt_token_ids[:1201] for one in requests}) == 6
    assert {bar.at_least for bar in wanted.bars if bar.at_least} == {1184}


def test_half_of_the_mixed_load_shares_a_prompt_and_a_third_are_turns():
    lanes = reuse.prefix(1, mixed_count=30, concurrency=8).variants[2].lanes
    counts = collections.Counter(one.group for lane in lanes for one in lane.requests)
    assert counts == {"system": 15, "turns": 10, "others": 5}
    assert sum(lane.concurrency for lane in lanes) == 8


def test_the_pool_of_affinity_keeps_fewer_prefixes_than_alternate():
    wanted = affinity.affinity(1, prefixes=6)
    assert wanted.server.kv_tokens < 6 * affinity.PREFIX_TOKENS
    assert wanted.server.kv_tokens > 3 * affinity.PREFIX_TOKENS
    prefixes = [one.prompt_token_ids[: affinity.PREFIX_TOKENS] for one in wanted.lanes[0].requests]
    assert prefixes[:6] == prefixes[6:12]
    assert len(set(prefixes)) == 6


def test_the_host_tier_has_twice_the_bytes_and_the_larger_load_twice_the_sessions():
    wanted = tiers.tiers(1, sessions=3, kv_bytes_per_token=100)
    small, crowded, tiered = wanted.variants
    assert crowded.lanes == tiered.lanes
    assert len(crowded.lanes[0].requests) == 2 * len(small.lanes[0].requests)
    assert wanted.server.host_memory_bytes == 2 * 100 * wanted.server.kv_tokens
    longest = tiers.TURN_SHAPE.longest_tokens
    assert 3 * longest <= wanted.server.kv_tokens < 6 * longest <= 3 * wanted.server.kv_tokens
    firsts = [one for one in crowded.lanes[0].requests if one.group == sharing.FIRST]
    assert len(firsts) == 6
