"""Samples over time as an engine's state, and the step time that is learned from them."""

import dataclasses
import random

import pytest

from firsttoken_api.state import FlagsState, Phase
from firsttoken_api.step_time import StepTime
from firsttoken_sidecar import vllm_metrics, vllm_state
from firsttoken_sidecar.vllm_metrics import Histogram, Sample
from sidecar import fake_vllm

FLAGS = FlagsState(generation=3, enabled=("prefix-cache",))
EMPTY = Sample(at_s=100.0, model="chat", blocks=1000, block_tokens=16, kv_type="auto")


def history(*samples: Sample, chunk_tokens: int = 512) -> vllm_state.History:
    made = vllm_state.History(max_num_seqs=4, chunk_tokens=chunk_tokens, max_model_len=2048)
    for sample in samples:
        made.add(sample)
    return made


def test_the_recorded_server() -> None:
    state = history(vllm_metrics.read(fake_vllm.recorded("busy.prom"), 1.0)).state(FLAGS)
    assert (state.phase, state.model, state.max_model_len) == (Phase.READY, "chat", 2048)
    assert state.running == state.max_num_seqs == state.max_prefill_batch == 4
    assert state.waiting > 0
    assert state.kv.blocks_total > state.kv.blocks_used > 0
    assert state.cache.kv_type == "full"
    assert state.cache.query_tokens_total > state.cache.hit_tokens_total["device"] == 0
    assert state.flags == FLAGS
    assert state.waiting_by_class == {"": state.waiting}


def test_what_waits_counts_with_the_mean_prompt_of_late() -> None:
    before = dataclasses.replace(EMPTY, prompt_tokens=Histogram(10, 1_000.0))
    after = dataclasses.replace(EMPTY, at_s=101.0, waiting=3, prompt_tokens=Histogram(12, 1_900.0))
    assert history(before, after).state(FLAGS).backlog_tokens == 3 * 450
    assert history(dataclasses.replace(before, waiting=2)).state(FLAGS).backlog_tokens == 2 * 100


def test_only_the_last_half_minute_counts_where_late_is_meant() -> None:
    slow = Histogram(5, 5.0, ((0.1, 0.0), (1.0, 5.0), (float("inf"), 5.0)))
    quick = Histogram(9, 5.2, ((0.1, 4.0), (1.0, 9.0), (float("inf"), 9.0)))
    samples = [
        EMPTY,
        dataclasses.replace(EMPTY, at_s=110.0, token_time=slow),
        dataclasses.replace(EMPTY, at_s=135.0, token_time=quick),
    ]
    assert history(*samples[:2]).state(FLAGS).tpot_p95_s > 0.9
    assert history(*samples).state(FLAGS).tpot_p95_s < 0.1
    assert history(*samples, dataclasses.replace(samples[2], at_s=170.0)).state(FLAGS).tpot_p95_s == 0.0


@pytest.mark.parametrize(("text", "expected"), [("auto", "full"), ("bfloat16", "full"), ("fp8_e4m3", "fp8")])
def test_kv_types(text: str, expected: str) -> None:
    state = history(dataclasses.replace(EMPTY, kv_type=text)).state(FLAGS)
    assert state.cache.kv_type == expected


def served(price: StepTime, intervals: int, seed: int = 1) -> list[Sample]:
    """Looks, half a second apart, at an engine with these prices that has work all the time."""
    draw = random.Random(seed)
    samples = [dataclasses.replace(EMPTY, running=4, waiting=1)]
    for _ in range(intervals):
        before = samples[-1]
        decoding = draw.randrange(1, 5)
        seconds, steps, prompt, generated = 0.0, 0, 0, 0
        while seconds < 0.5:
            chunk = draw.choice([0, 0, 64, 300, 512])
            seconds += price.seconds(chunk, decoding, 0)
            steps, prompt, generated = steps + 1, prompt + chunk, generated + decoding
        samples.append(
            dataclasses.replace(
                before,
                at_s=before.at_s + seconds,
                steps=before.steps + steps,
                generated_tokens=before.generated_tokens + generated,
                step_tokens=before.step_tokens + prompt + generated,
            )
        )
    return samples


def test_the_step_time_is_found_from_counters() -> None:
    true = StepTime(fixed_s=0.010, per_prefill_token_s=0.0005, per_decode_s=0.002)
    found = history(*served(true, 120)).state(FLAGS)
    assert found.step_time is not None
    for chunk, decoding in ((0, 1), (0, 4), (512, 2), (100, 4)):
        expected_s = true.seconds(chunk, decoding, 0)
        assert found.step_time.seconds(chunk, decoding, 0) == pytest.approx(expected_s, rel=0.15)
    rate = true.prefill_tokens_per_s(512, 4, 0)
    assert found.prefill_tokens_per_s == pytest.approx(rate, rel=0.15)


def test_nothing_is_learned_of_an_engine_that_rests_or_is_not_looked_at() -> None:
    true = StepTime(fixed_s=0.010, per_prefill_token_s=0.0005, per_decode_s=0.002)
    busy = served(true, 60)
    resting = [dataclasses.replace(sample, running=0) for sample in busy]
    assert history(*resting).state(FLAGS).step_time is None
    rare = [dataclasses.replace(sample, at_s=100.0 + 5.0 * n) for n, sample in enumerate(busy)]
    state = history(*rare).state(FLAGS)
    assert state.step_time is None
    assert state.prefill_tokens_per_s == 0.0


def test_another_process_starts_with_nothing_known() -> None:
    true = StepTime(fixed_s=0.010, per_prefill_token_s=0.0005, per_decode_s=0.002)
    known = history(*served(true, 60))
    assert known.state(FLAGS).step_time is not None
    known.add(dataclasses.replace(EMPTY, at_s=200.0))
    assert known.state(FLAGS).step_time is None
