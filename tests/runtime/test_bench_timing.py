"""Timing attacks as data, and against a server with a fake engine."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from firsttoken_runtime.bench import beginning, conduct, server, timing, timing_report, timing_run
from firsttoken_runtime.bench import client as bench_client
from runtime.bench_results import context
from runtime.fake_engine import Script
from runtime.serving import serving

TIMES = st.lists(st.floats(0.0, 10.0), min_size=1, max_size=9)


def sample(index: int, cold_s: float, other_s: float, hit_s: float | None = None, cached: int = 0):
    return timing.Sample(index, cold_s, other_s, hit_s, index % 2 == 0, cached)


def test_what_is_always_slower_is_told_apart_and_what_is_alike_is_not():
    assert timing.auc([2.0, 3.0], [1.0, 1.5]) == 1.0
    assert timing.auc([1.0], [2.0]) == 0.0
    assert timing.auc([1.0, 1.0], [1.0]) == 0.5
    assert timing.auc([1.0, 3.0], [2.0]) == 0.5
    assert timing.auc([], [1.0]) is None


@given(TIMES, TIMES)
def test_the_two_sides_of_an_auc_add_up_to_one(one, other):
    forward, back = timing.auc(one, other), timing.auc(other, one)
    assert forward is not None
    assert back is not None
    assert forward + back == pytest.approx(1.0)


def test_equal_times_pass_and_faster_ones_of_another_tenant_do_not():
    generator = random.Random(1)
    noise = [generator.gauss(1.0, 0.1) for _ in range(400)]
    equal = [sample(index, noise[2 * index], noise[2 * index + 1], 0.1) for index in range(200)]
    assert [one.is_reached for one in timing.judge(equal)] == [True] * 4
    leaking = [sample(index, noise[index], noise[index + 1] - 0.2, 0.1, cached=64) for index in range(99)]
    assert [one.is_reached for one in timing.judge(leaking)] == [False, False, False, True]
    # A measure that does not see a hit of its own says nothing.
    blind = [sample(index, noise[index], noise[index + 1], noise[index + 2]) for index in range(150)]
    assert [one.is_reached for one in timing.judge(blind)] == [True, True, True, False]
    assert timing.judge([])[0].is_reached is None


def test_probes_are_of_one_length_all_different_and_in_either_order():
    probes = timing.probes(1, 20)
    prompts = [prompt for one in probes for prompt in (one.asked.prompt_token_ids, one.cold.prompt_token_ids)]
    assert len(set(prompts)) == 40
    assert {len(prompt) for prompt in prompts} == {timing.PROMPT_TOKENS}
    assert sum(one.is_cold_first for one in probes) == 10
    assert timing.probes(1, 20) == probes != timing.probes(2, 20)


def test_the_report_says_the_auc(tmp_path):
    done = timing_report.Measured((sample(0, 2.0, 1.0, 0.5), sample(1, 3.0, 1.5)), context(), "stopped")
    text = timing_report.markdown(done)
    assert "AUC of cold against other salt: **1.000**" in text
    assert "**Not complete**: stopped." in text
    assert "| cold | 2 | 2500.0 | 2000.0 to 3000.0 |" in text
    assert timing_report.document(done)["auc_other_salt"] == 1.0
    timing_report.draw(done, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()
    timing_report.draw(timing_report.Measured((), context()), tmp_path / "empty.png")


async def test_pairs_are_asked_in_turn(tmp_path):
    wish = conduct.Wish(Path("x"), tmp_path, 1, 1, 30.0, "1", "auto", "cpu")
    samples: list[timing.Sample] = []
    async with serving(Script(max_model_len=300, kv_blocks=400)) as served, bench_client.session() as http:
        target = server.Target(served.url, served.ops_url)
        conductor = conduct.Conductor(
            wish, target, http, Console(quiet=True), tmp_path, "", beginning.Beginning.now()
        )
        await timing_run.measure(6, conductor, samples, lambda now: None, range(65, 90))
    assert [one.index for one in samples] == list(range(6))
    assert [one.hit_s is not None for one in samples] == [True, False, False, False, True, False]
    assert all(one.cold_s > 0 and one.other_s > 0 for one in samples)
