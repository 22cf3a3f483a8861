"""What one request reports about itself."""

from firsttoken_api.state import EngineState, Phase
from firsttoken_runtime import core
from firsttoken_runtime.server.metrics import Metrics, RequestTimer


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})


def _token(scheduled_at_s: float = 0.0) -> core.Token:
    s = scheduled_at_s
    times = core.FirstTokenTimes(queued_s=s, scheduled_s=s, prefilled_s=s, sampled_s=s) if s else None
    return core.Token(sequence_id=1, token_id=1, times=times)


def test_the_times_of_a_request():
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock)
    clock.now_s = 102.0
    timer.tokens([_token(scheduled_at_s=100.5)])
    clock.now_s = 102.5
    timer.text()
    timer.text()
    clock.now_s = 104.0
    timer.tokens([_token(), _token()])
    clock.now_s = 104.5
    timer.end("stop", prompt_tokens=7, completion_tokens=3)
    assert _value(metrics, "vllm:request_queue_time_seconds_sum") == 0.5
    assert _value(metrics, "vllm:time_to_first_token_seconds_sum") == 2.5
    assert _value(metrics, "vllm:time_to_first_token_seconds_count") == 1
    assert _value(metrics, "vllm:inter_token_latency_seconds_sum") == 2.0
    assert _value(metrics, "vllm:inter_token_latency_seconds_count") == 2
    assert _value(metrics, "vllm:request_time_per_output_token_seconds_sum") == 1.0
    assert _value(metrics, "vllm:e2e_request_latency_seconds_sum") == 4.5
    assert _value(metrics, "vllm:request_success_total", finished_reason="stop") == 1


def test_preemptions_are_counted_once():
    metrics = Metrics("m")
    for total in (0, 2, 2, 3):
        stats = core.Stats(
            running=0,
            waiting=0,
            backlog_tokens=0,
            blocks_used=0,
            blocks_total=1,
            block_size_tokens=1,
            preemptions_total=total,
        )
        metrics.step(core.StepOutput(step=1, tokens=[], failures=[], stats=stats))
    assert _value(metrics, "vllm:num_preemptions_total") == 3


def test_gauges_follow_the_state():
    metrics = Metrics("m")
    metrics.exposition(EngineState(phase=Phase.LOADING))
    assert _value(metrics, "vllm:kv_cache_usage_perc") == 0
    state = EngineState(phase=Phase.READY, waiting=3, kv={"blocks_total": 8, "blocks_used": 2})
    metrics.exposition(state)
    assert _value(metrics, "vllm:kv_cache_usage_perc") == 0.25
    assert _value(metrics, "vllm:num_requests_waiting") == 3
