"""What is read of an exposition: the recorded ones of a real server, and those that a server could write."""

import pytest

from firsttoken_sidecar import vllm_metrics
from firsttoken_sidecar.vllm_metrics import Histogram
from sidecar import fake_vllm


def read(text: str) -> vllm_metrics.Sample:
    return vllm_metrics.read(text.encode(), 7.0)


RUNNING = 'vllm:num_requests_running{engine="0",model_name="chat"} 2.0\n'


def test_every_series_that_is_needed_is_in_the_recording() -> None:
    """A new version of vLLM that renames one is found here, when it is recorded."""
    text = fake_vllm.recorded("busy.prom").decode()
    present = {line[len("vllm:") :].partition("{")[0] for line in text.splitlines() if line[:5] == "vllm:"}
    assert present >= vllm_metrics.NEEDED


def test_an_idle_server() -> None:
    sample = vllm_metrics.read(fake_vllm.recorded("idle.prom"), 1.0)
    assert (sample.model, sample.running, sample.waiting) == ("chat", 0, 0)
    assert sample.blocks > 0
    assert sample.block_tokens > 0
    assert sample.kv_use == 0.0
    assert sample.steps == sample.generated_tokens == 0
    assert sample.token_time == Histogram(0.0, 0.0, sample.token_time.buckets)


def test_a_busy_server() -> None:
    sample = vllm_metrics.read(fake_vllm.recorded("busy.prom"), 1.0)
    assert sample.running == 4
    assert sample.waiting > 0
    assert 0 < sample.kv_use < 1
    assert sample.blocks_used > 0
    assert sample.context_tokens == sample.blocks_used * sample.block_tokens
    assert sample.steps > 0
    assert sample.step_tokens >= sample.generated_tokens > 0
    assert sample.query_tokens > sample.hit_tokens == 0


def test_engine_processes_are_added_up_and_shares_are_not() -> None:
    sample = read(
        RUNNING
        + RUNNING.replace('engine="0"', 'engine="1"').replace("2.0", "3.0")
        + 'vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 0.25\n'
        + 'vllm:kv_cache_usage_perc{engine="1",model_name="chat"} 0.75\n'
        + 'vllm:inter_token_latency_seconds_bucket{engine="0",le="0.1",model_name="chat"} 3.0\n'
        + 'vllm:inter_token_latency_seconds_bucket{engine="1",le="0.1",model_name="chat"} 4.0\n'
        + 'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="chat"} 9.0\n'
    )
    assert sample.running == 5
    assert sample.kv_use == 0.75
    assert sample.token_gap.buckets == ((0.1, 7.0), (float("inf"), 9.0))


def test_labels_may_hold_anything() -> None:
    odd = RUNNING.replace('"chat"', '"a } b\\"c 9 {"')
    assert read(odd).running == 2


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "much", ""])
def test_a_value_that_is_no_number_is_passed_over(value: str) -> None:
    sample = read(RUNNING + f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\n')
    assert sample.kv_use == 0.0


@pytest.mark.parametrize("text", ["", "# nothing\n", "engine_thing 7\n", "vllm:num_requests_waiting 1\n"])
def test_what_is_not_vllms_is_named(text: str) -> None:
    with pytest.raises(vllm_metrics.NotVllmError, match="num_requests_running"):
        read(text)


def test_a_cache_whose_size_is_not_known() -> None:
    sample = read(RUNNING + 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n')
    assert (sample.blocks, sample.block_tokens, sample.context_tokens) == (0, 16, 0)


def test_quantiles_are_interpolated() -> None:
    histogram = Histogram(10, 5.0, ((0.1, 2.0), (0.5, 8.0), (float("inf"), 10.0)))
    assert histogram.quantile(0.1) == pytest.approx(0.05)
    assert histogram.quantile(0.5) == pytest.approx(0.3)
    assert histogram.quantile(0.99) == 0.5, "all that is known of what lies past the last edge"
    assert histogram.mean == 0.5
    assert Histogram().quantile(0.5) == Histogram().mean == 0.0


def test_what_came_since() -> None:
    before = Histogram(2, 1.0, ((0.1, 2.0), (float("inf"), 2.0)))
    after = Histogram(5, 4.0, ((0.1, 3.0), (float("inf"), 5.0)))
    assert after.since(before) == Histogram(3, 3.0, ((0.1, 1.0), (float("inf"), 3.0)))
