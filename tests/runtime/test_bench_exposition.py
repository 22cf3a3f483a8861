from firsttoken_runtime.bench import exposition, summary

TEXT = """# HELP a b
# TYPE a counter
vllm:num_preemptions_total{model_name="a b",engine="0"} 3.0
firsttoken_engine_kv_live_slot_seconds_total{model_name="m",engine="0"} 1.5e+03
firsttoken_engine_kv_needed_slot_seconds_total{model_name="m",engine="0"} 1600
firsttoken_engine_kv_allocated_slot_seconds_total{model_name="m",engine="0"} 2000
two{le="1"} 1
two{le="2"} 2
garbage
"""


def test_samples_are_summed_over_labels():
    samples = exposition.values(TEXT)
    assert samples["two"] == 3.0
    assert exposition.slots(samples) == summary.Slots(1500.0, 1600.0, 2000.0)
    assert exposition.preemptions(samples) == 3


def test_a_server_of_another_kind_has_none():
    assert exposition.slots({exposition.LIVE: 1.0}) is None
    assert exposition.preemptions({}) is None
    assert exposition.reuse({}) is None


def test_tiers_are_told_apart_and_summed():
    text = "\n".join(
        [
            'vllm:prefix_cache_queries_total{engine="0"} 500.0',
            'vllm:prefix_cache_hits_total{engine="0"} 300.0',
            'firsttoken_engine_prefix_hit_tokens_total{engine="0",tier="device"} 200.0',
            'firsttoken_engine_prefix_hit_tokens_total{engine="1",tier="device"} 16.0',
            'firsttoken_engine_prefix_hit_tokens_total{tier="host"} 84.0',
        ]
    )
    samples = exposition.values(text)
    assert samples["firsttoken_engine_prefix_hit_tokens_total"] == 300.0
    assert exposition.reuse(samples) == summary.Reuse(500.0, {"device": 216.0, "host": 84.0})
    only_vllm = exposition.values("\n".join(text.splitlines()[:2]))
    assert exposition.reuse(only_vllm) == summary.Reuse(500.0, {exposition.ANY_TIER: 300.0})
