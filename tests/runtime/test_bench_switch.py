"""Hot switches as data, and against a server with a fake engine."""

from pathlib import Path

import pytest
from rich.console import Console

from firsttoken_runtime.bench import beginning, conduct, experiment, server, switch, switch_report, switch_run
from firsttoken_runtime.bench import client as bench_client
from runtime.bench_results import context
from runtime.fake_engine import Script
from runtime.serving import serving


def made(**changes: object) -> switch.Switch:
    given = {
        "name": "to kv-int8",
        "repeat": 0,
        "running": 16,
        "pause_s": 0.4,
        "gaps_s": (1.0, 4.0),
        "recomputed_tokens": 1600,
        "prefill_tokens_per_s": 400.0,
        "engine_pause_s": 0.01,
    }
    return switch.Switch(**(given | changes))


@pytest.mark.parametrize(
    ("pieces_s", "expected"),
    [
        ([1.0, 2.0, 7.0, 7.5, 8.0], 5.0),
        # The last piece of the old layout comes after the flags were sent.
        ([1.0, 3.1, 9.0, 9.5], 5.9),
        ([1.0, 2.0], None),
        ([7.0, 8.0], None),
        ([], None),
        # What happens long after the switch is not of it.
        ([2.0, 4.0, 5.0, 6.0, 7.0, 27.0], 2.0),
    ],
)
def test_the_gap_is_the_longest_wait_around_the_switch(pieces_s, expected):
    assert switch.gap_s(pieces_s, sent_s=3.0) == (None if expected is None else pytest.approx(expected))


def test_the_bound_follows_the_recomputed_tokens():
    assert made().bound_s == pytest.approx(1.25 * 4.0)
    assert made().gap_by_bound == pytest.approx(0.8)
    assert made(gaps_s=()).gap_by_bound is None


def test_the_worst_switch_is_judged_and_every_stream_must_go_on():
    switches = [made(), made(repeat=1, pause_s=1.2, gaps_s=(2.0, 6.0), running=15)]
    pause, gap, running, failed = switch.judge(switches, [switch.Streams(0, 16, 1, ("HTTP 500",))])
    assert (pause.value, pause.lowest, pause.is_reached) == (1.2, 0.4, False)
    assert (gap.value, gap.is_reached) == (pytest.approx(1.2), False)
    assert (running.value, running.is_reached) == (15, False)
    assert (failed.value, failed.is_reached) == (1, False)
    assert all(one.is_reached for one in switch.judge([made()], [switch.Streams(0, 16, 0)]))
    assert [one.is_reached for one in switch.judge([], [])] == [None] * 4


def test_all_streams_fit_at_once():
    plan = switch.plan("kv-int8")
    text = list(range(5000))
    streams = switch.streams(text, 1, 0)
    tokens = sum(len(one.prompt_token_ids) + (one.output_tokens or 0) for one in streams)
    assert len(streams) == plan.server.max_num_seqs == 16
    assert tokens <= plan.server.kv_tokens
    assert switch.streams(text, 1, 1) != streams
    for one in streams:
        assert list(one.prompt_token_ids) == text[one.prompt_token_ids[0] :][: len(one.prompt_token_ids)]
    assert set(plan.after.flags_on) - set(plan.before.flags_on) == {"kv-int8"}


def test_the_report_has_a_row_for_each_switch_and_says_what_failed(tmp_path):
    done = switch_report.Measured(
        switch.plan("kv-int8"),
        (made(), made(name="back to 16 bit", gaps_s=())),
        (switch.Streams(0, 16, 1, ("HTTP 500: no",)),),
        context(),
        "it was stopped",
    )
    text = switch_report.markdown(done)
    assert "| to kv-int8, repeat 1 | 16 | 400 / 10.0 | 1600 | 400 | 1000 / 4000 | – | 5000 |" in text
    assert "**Not complete**: it was stopped." in text
    assert "failed: HTTP 500: no" in text
    assert switch_report.document(done)["switches"][0]["bound_s"] == 5.0
    switch_report.draw(done, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()


async def test_flags_change_while_the_streams_run(tmp_path, monkeypatch):
    monkeypatch.setattr(switch, "PROMPT_TOKENS", switch.lengths.Uniform(4, 9))
    monkeypatch.setattr(switch, "RATE_TOKENS", 32)
    plan = switch.Plan(
        experiment.Variant("one block", ()),
        experiment.Variant("paged", ("paged-kv",)),
        experiment.ServerNeeds(max_model_len=300, kv_tokens=9999),
    )
    wish = conduct.Wish(Path("x"), tmp_path, 2, 1, 30.0, "1", "auto", "cpu")
    script = Script(token_s=0.005, max_model_len=300, kv_blocks=400)
    seen = switch_run.Seen([], [])
    async with serving(script) as served, bench_client.session() as http:
        target = server.Target(served.url, served.ops_url)
        conductor = conduct.Conductor(
            wish, target, http, Console(quiet=True), tmp_path, "", beginning.Beginning.now()
        )
        await switch_run.measure(plan, conductor, seen, lambda now: None)
        assert (await served.state())["flags"]["enabled"] == []
    assert [(one.name, one.repeat) for one in seen.switches] == [
        ("to paged", 0),
        ("back to one block", 0),
        ("to paged", 1),
        ("back to one block", 1),
    ]
    for one in seen.switches:
        assert one.running == len(one.gaps_s) == 16
        assert 0 < one.pause_s < 5
        assert one.recomputed_tokens >= 16 * (4 + switch.PIECES_BETWEEN)
        assert one.prefill_tokens_per_s > 0
    assert [(one.asked, one.failed) for one in seen.streams] == [(16, 0), (16, 0)]
