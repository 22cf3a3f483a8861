"""What a server measures, and under which names it is read."""

from typing import Any

import msgspec

from firsttoken_api.state import EngineState, Phase
from firsttoken_runtime import core
from firsttoken_runtime.server import metrics as server_metrics
from firsttoken_runtime.server.metrics import Metrics


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})


def _stats(**changes: Any) -> core.Stats:
    return msgspec.structs.replace(server_metrics.NOTHING_SEEN, **changes)


def _step(stats: core.Stats, **changes: Any) -> core.StepOutput:
    return core.StepOutput(**({"step": 1, "tokens": [], "failures": [], "stats": stats} | changes))


def test_totals_of_the_engine_are_counted_once():
    metrics = Metrics("m")
    for total in (0, 2, 2, 3):
        metrics.step(_step(_stats(preemptions_total=total, kv_live_slot_seconds_total=total * 1.5)))
    assert _value(metrics, "vllm:num_preemptions_total") == 3
    assert _value(metrics, "firsttoken_engine_kv_live_slot_seconds_total") == 4.5


def test_the_cache_is_counted_by_tier_and_reason():
    metrics = Metrics("m")
    assert _value(metrics, "firsttoken_engine_prefix_hit_tokens_total", tier="host") == 0
    for queries, device, host in ((100, 48, 0), (100, 48, 0), (300, 64, 32)):
        metrics.step(
            _step(
                _stats(
                    prefix_query_tokens_total=queries,
                    prefix_hit_tokens_total={"device": device, "host": host},
                    rule_decisions={"private": queries // 100},
                    host_problems={"checksum": host // 32},
                    lineage_changes_total=1,
                    evictions_total=host,
                    kv_deviation=core.KvDeviation(num_samples=queries),
                )
            )
        )
    assert _value(metrics, "vllm:prefix_cache_queries_total") == 300
    assert _value(metrics, "vllm:prefix_cache_hits_total") == 96
    assert _value(metrics, "firsttoken_engine_prefix_hit_tokens_total", tier="device") == 64
    assert _value(metrics, "firsttoken_engine_prefix_hit_tokens_total", tier="host") == 32
    assert _value(metrics, "firsttoken_engine_rule_decisions_total", reason="private") == 3
    assert _value(metrics, "firsttoken_engine_host_problems_total", reason="checksum") == 1
    assert _value(metrics, "firsttoken_engine_lineage_changes_total") == 1
    assert _value(metrics, "firsttoken_engine_evictions_total") == 32
    assert _value(metrics, "firsttoken_engine_kv_deviation_samples_total") == 300


def test_the_cache_s_gauges_follow_the_state():
    metrics = Metrics("m")
    metrics.exposition(EngineState(phase=Phase.LOADING))
    assert _value(metrics, "firsttoken_engine_kv_deviation", measure="mean") is None
    cache = {"kv_type": "int8", "recompute_debt_tokens": 7, "deviation": {"worst_layer_mean": 0.01}}
    metrics.exposition(EngineState(phase=Phase.READY, cache=cache))
    assert _value(metrics, "firsttoken_engine_kv_type", type="int8") == 1
    assert _value(metrics, "firsttoken_engine_kv_type", type="full") == 0
    assert _value(metrics, "firsttoken_engine_recompute_debt_tokens") == 7
    assert _value(metrics, "firsttoken_engine_kv_deviation", measure="mean") == 0.01
    metrics.exposition(EngineState(phase=Phase.READY, cache={"kv_type": "full"}))
    assert _value(metrics, "firsttoken_engine_kv_deviation", measure="mean") is None, "of another KV type"


def test_failures_are_counted_by_their_code_and_a_nan_as_vllm_does():
    metrics = Metrics("m")
    failures = [
        core.Failure(sequence_id=1, message="", code="not_finite"),
        core.Failure(sequence_id=2, message="", code="grammar"),
    ]
    metrics.step(_step(_stats(), failures=failures))
    assert _value(metrics, "firsttoken_engine_failures_total", code="not_finite") == 1
    assert _value(metrics, "firsttoken_engine_failures_total", code="grammar") == 1
    assert _value(metrics, "vllm:corrupted_requests_total") == 1


def test_steps_are_measured_and_heartbeats_are_not():
    metrics = Metrics("m")
    metrics.step(_step(_stats(), computed_tokens=130))
    metrics.step(_step(_stats()))
    assert _value(metrics, "vllm:iteration_tokens_total_count") == 1
    assert _value(metrics, "vllm:iteration_tokens_total_sum") == 130


def test_a_class_that_is_no_longer_declared_is_no_longer_reported():
    metrics = Metrics("m")
    metrics.exposition(EngineState(phase=Phase.READY, waiting_by_class={"interactive": 2, "batch": 1}))
    assert _value(metrics, "firsttoken_engine_waiting", **{"class": "interactive"}) == 2
    metrics.exposition(EngineState(phase=Phase.READY, waiting_by_class={"batch": 4}))
    assert _value(metrics, "firsttoken_engine_waiting", **{"class": "interactive"}) is None
    assert _value(metrics, "firsttoken_engine_waiting", **{"class": "batch"}) == 4


def test_refusals_are_counted_by_their_reason():
    metrics = Metrics("m")
    metrics.refused("wait")
    assert _value(metrics, "vllm:admission_rejections_total") == 1
    assert _value(metrics, "firsttoken_engine_admission_refused_total", reason="wait") == 1


def test_gauges_follow_the_state():
    metrics = Metrics("m")
    metrics.exposition(EngineState(phase=Phase.LOADING))
    assert _value(metrics, "vllm:kv_cache_usage_perc") == 0
    state = EngineState(phase=Phase.READY, waiting=3, kv={"blocks_total": 8, "blocks_used": 2})
    metrics.exposition(state)
    assert _value(metrics, "vllm:kv_cache_usage_perc") == 0.25
    assert _value(metrics, "vllm:num_requests_waiting") == 3
