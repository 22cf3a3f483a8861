import pytest

from firsttoken_runtime.bench import arrivals, reference, steps, workload


def test_the_cpu_profile_is_as_it_is_described():
    profile = steps.PROFILES["cpu"]
    requests = steps.requests(profile, 1, profile.requests)
    prompts = [len(one.prompt_token_ids) for one in requests]
    assert (profile.requests, profile.concurrency, profile.max_model_len) == (120, 32, 1024)
    assert sum(512 <= tokens <= 768 for tokens in prompts) == 12
    assert sum(32 <= tokens <= 128 for tokens in prompts) == 108
    assert all(8 <= (one.output_tokens or 0) <= 64 for one in requests)
    assert profile.time_limit_s <= 45 * 60


@pytest.mark.parametrize("profile", steps.PROFILES.values(), ids=lambda profile: profile.name)
def test_every_request_fits_the_context(profile):
    for one in steps.requests(profile, 2, profile.requests):
        assert len(one.prompt_token_ids) + (one.output_tokens or 0) < profile.max_model_len


def test_each_step_adds_to_the_one_before_and_the_last_has_all():
    for (_, before), (_, after) in zip(steps.STEPS, steps.STEPS[1:], strict=False):
        assert set(before) < set(after)
    assert set(steps.STEPS[-1][1]) == {"paged-kv", "continuous-batching", "chunked-prefill", "priority"}


def test_what_is_not_built_is_left_out_and_named():
    variants, missing = steps.variants(("paged-kv", "continuous-batching", "chunked-prefill"))
    assert missing == ["priority"]
    assert variants[-1].flags_on == ("paged-kv", "continuous-batching", "chunked-prefill")


def test_the_baseline_holds_eight_slabs():
    profile = steps.PROFILES["cpu"]
    lane = workload.closed(steps.requests(profile, 1, 5), 2)
    built = steps.build(profile, lane, ["said"])
    assert built.server.kv_tokens == 8 * 1024
    assert built.server.kv_blocks == 512
    assert "said" in built.notes
    assert {bar.at_most or bar.at_least for bar in built.bars} == {
        reference.TTFT_P99_FACTOR,
        reference.THROUGHPUT_FACTOR,
        0.88,
        0.05,
    }


def test_open_loop_lanes_keep_the_lengths():
    requests = steps.requests(steps.PROFILES["long-tail"], 1, 9)
    lane = steps.poisson_lane(requests, 5.0, 1)
    assert [len(one.prompt_token_ids) for one in lane.requests] == [
        len(one.prompt_token_ids) for one in requests
    ]
    assert lane == steps.poisson_lane(requests, 5.0, 1)
    scaled = arrivals.Scaled((arrivals.Arrival(2.0, 9, 4), arrivals.Arrival(1.0, 5, 3)), cut=0)
    traced = steps.trace_lane(scaled, 1)
    assert [(one.arrival_s, len(one.prompt_token_ids), one.output_tokens) for one in traced.requests] == [
        (1.0, 5, 3),
        (2.0, 9, 4),
    ]
