import pytest

from firsttoken_runtime.bench import stages, summary
from runtime.bench_results import failed, record, round_


def timed(ttft_ms: float, unseen_ms: float = 1.0, **stages_ms: float) -> summary.Record:
    """By default a third waits and the rest computes."""
    parts = stages_ms or {"queue": ttft_ms / 3, "prefill": ttft_ms - ttft_ms / 3}
    return record((ttft_ms + unseen_ms) / 1e3, server_timing=summary.ServerTiming(ttft_ms, parts))


def sample(load: str, *records: summary.Record, repeat: int = 0, **changes: float) -> stages.Sample:
    return stages.Sample(round_(load, [], repeat, records=records), **changes)


def verdicts(*samples: stages.Sample) -> dict[tuple[str, str], stages.Verdict]:
    return {(one.load, one.text.split(",")[-1].strip()): one for one in stages.judge(samples)}


def test_means_of_the_stages_add_up_and_the_rest_is_the_clients():
    made = stages.figures(
        [sample("alone", timed(30.0, 1.0), timed(60.0, 3.0)), sample("alone", timed(90.0, 8.0))]
    )
    assert made is not None
    assert made.stages["queue"].mean_ms == pytest.approx(20.0)
    assert sum(one.mean_ms for one in made.stages.values()) == pytest.approx(made.server.mean_ms)
    assert (made.server.p50_ms, made.client.p50_ms) == pytest.approx((60.0, 63.0))
    assert made.unseen.p50_ms == pytest.approx(3.0)
    assert made.unseen.p99_ms == pytest.approx(3.0 + 0.98 * 5.0)
    assert made.largest_difference_ms < 1e-9


def test_errors_and_answers_without_timing_are_in_no_figure():
    made = stages.figures([sample("alone", timed(30.0), failed(), record(9.0))])
    assert made is not None
    assert (made.requests, made.errors, made.server.mean_ms) == (3, 1, 30.0)
    assert stages.figures([sample("alone", failed())]) is None


def test_one_request_whose_stages_do_not_add_up_misses_the_bar():
    exact = verdicts(sample("alone", timed(30.0), timed(10.0)))
    assert exact["alone", "largest difference"].is_reached
    off = verdicts(sample("alone", timed(30.0), timed(10.0, queue=5.0, prefill=5.00001)))
    verdict = off["alone", "largest difference"]
    assert verdict.value_ms == pytest.approx(1e-5, rel=1e-3)
    assert verdict.is_reached is False


def test_what_the_server_does_not_see_is_judged_by_load():
    found = verdicts(
        sample("alone", timed(30.0, 1.0)),
        sample("8 clients", timed(30.0, 7.0)),
        sample("alone", timed(30.0, 2.0), repeat=1),
    )
    assert found["alone", "P50"].is_reached
    assert found["alone", "P50"].singles_ms == pytest.approx((1.0, 2.0))
    assert found["8 clients", "P50"].is_reached is False
    assert found["8 clients", "P99"].is_reached is False


def test_p99_is_not_judged_where_the_client_had_no_core_for_itself():
    found = verdicts(sample("alone", timed(30.0, 9.0), client_core_load=0.4))
    verdict = found["alone", "P99"]
    assert (verdict.is_reached, verdict.value_ms) == (None, pytest.approx(9.0))
    assert "40%" in verdict.not_judged
    assert found["alone", "P50"].is_reached is False
    busy_server = verdicts(sample("alone", timed(30.0, 9.0), server_core_load=0.4))
    assert busy_server["alone", "P99"].is_reached is False


def test_nothing_measured_is_no_verdict():
    assert {one.is_reached for one in stages.judge([])} == {None}


def test_the_loads_have_the_same_lengths_and_other_prompts():
    alone, together = (stages.lane(1, 0, load, 13) for load in stages.LOADS)
    assert (alone.concurrency, together.concurrency) == (1, 8)
    lengths = [[len(one.prompt_token_ids) for one in lane.requests] for lane in (alone, together)]
    assert lengths[0] == lengths[1]
    assert min(lengths[0]) >= 64
    assert max(lengths[0]) <= 256
    assert len(set(lengths[0])) > 3
    assert alone == stages.lane(1, 0, "alone", 13)
    prompts = {one.prompt_token_ids[:8] for lane in (alone, together) for one in lane.requests}
    others = {one.prompt_token_ids[:8] for one in stages.lane(1, 1, "alone", 13).requests}
    assert (len(prompts), len(prompts & others)) == (26, 0)
