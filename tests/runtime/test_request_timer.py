"""What one request reports about itself."""

import math

from firsttoken_runtime import core
from firsttoken_runtime.server import stages
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.request_timer import RequestTimer


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "m", "engine": "0", **labels})


def _token(times: core.FirstTokenTimes | None = None) -> core.Token:
    return core.Token(sequence_id=1, token_id=1, times=times)


def _times() -> core.FirstTokenTimes:
    return core.FirstTokenTimes(queued_s=100.25, scheduled_s=100.5, prefilled_s=101.0, sampled_s=101.5)


def test_the_times_of_a_request():
    ended: list[stages.Ended] = []
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock, ended.append)
    clock.now_s = 102.0
    timer.tokens([_token(_times())])
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
    assert _value(metrics, "vllm:request_prefill_time_seconds_sum") == 1.0
    assert _value(metrics, "vllm:request_decode_time_seconds_sum") == 3.0
    assert _value(metrics, "vllm:request_inference_time_seconds_sum") == 4.0
    assert _value(metrics, "vllm:e2e_request_latency_seconds_sum") == 4.5
    assert _value(metrics, "vllm:request_success_total", finished_reason="stop") == 1
    assert [one.timing for one in ended] == [timer.timing]


def test_the_stages_add_up_to_the_ttft():
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock)
    timer.tokens([_token(_times())])
    clock.now_s = 102.5
    timer.text()
    assert timer.timing is not None
    assert math.fsum(timer.timing.stages_s.values()) == timer.timing.ttft_s == 2.5
    for stage, seconds in zip(stages.Stage, (0.25, 0.25, 0.0, 0.5, 0.5, 1.0), strict=True):
        assert _value(metrics, "firsttoken_engine_ttft_stage_seconds_sum", stage=stage.value) == seconds


def test_gaps_are_those_of_each_choice():
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock)
    for now_s, choice in ((101.0, 0), (105.0, 1), (106.0, 0), (107.0, 1)):
        clock.now_s = now_s
        timer.tokens([_token()], choice)
    assert _value(metrics, "vllm:inter_token_latency_seconds_count") == 2
    assert _value(metrics, "vllm:inter_token_latency_seconds_sum") == 7.0


def test_the_pace_is_that_of_each_choice():
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock)
    for now_s, choice in ((101.0, 0), (101.0, 1), (103.0, 0), (105.0, 1)):
        clock.now_s = now_s
        timer.tokens([_token()], choice)
    timer.end("length", prompt_tokens=1, completion_tokens=4)
    assert _value(metrics, "vllm:request_time_per_output_token_seconds_count") == 2
    assert _value(metrics, "vllm:request_time_per_output_token_seconds_sum") == 6.0


def test_a_request_without_text_has_no_ttft():
    metrics = Metrics("m")
    RequestTimer(metrics, _Clock()).end("abort", prompt_tokens=7, completion_tokens=0)
    assert _value(metrics, "vllm:time_to_first_token_seconds_count") == 0
    assert _value(metrics, "vllm:request_success_total", finished_reason="abort") == 1


def test_what_the_timing_would_be_now_records_nothing():
    clock, metrics = _Clock(), Metrics("m")
    timer = RequestTimer(metrics, clock)
    timer.tokens([_token(_times())])
    clock.now_s = 102.0
    assert (timer.timing_now().ttft_s, timer.since_first_text_s()) == (2.0, 0.0)
    assert (timer.timing, _value(metrics, "vllm:time_to_first_token_seconds_count")) == (None, 0)
    clock.now_s = 102.5
    timer.text()
    clock.now_s = 103.0
    assert (timer.timing_now().ttft_s, timer.since_first_text_s()) == (2.5, 0.5)
