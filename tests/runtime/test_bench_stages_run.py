"""The loads of `bench stages` against a server with a fake engine; nothing is pinned."""

from pathlib import Path

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import beside, experiment, server, stages, stages_run
from firsttoken_runtime.bench import client as bench_client
from runtime.fake_engine import Script
from runtime.serving import serving


def wish(**changes: object) -> stages_run.Wish:
    given = {
        "source": Path("x"),
        "out": None,
        "requests": 5,
        "repeats": 2,
        "seed": 1,
        "time_limit_s": 30.0,
        "server_core": 0,
        "client_core": 0,
        "dtype": "auto",
        "token_ids": range(32, 127),
    }
    return stages_run.Wish(**(given | changes))


async def test_the_loads_take_turns_and_every_request_is_timed_twice():
    seen = []
    script = Script(token_s=0.001, max_model_len=300, kv_blocks=200)
    async with serving(script) as served, bench_client.session() as http:
        target = server.Target(served.url, served.ops_url)
        samples = []
        await stages_run.measure(
            wish(),
            target,
            http,
            lambda now: seen.append((now.variant, now.repeat, now.done, now.total)),
            samples,
        )
    assert [(one.round.variant, one.round.repeat) for one in samples] == [
        ("alone", 0),
        ("8 clients", 0),
        ("8 clients", 1),
        ("alone", 1),
    ]
    assert seen[:6] == [("alone", 0, done, 5) for done in range(6)]
    for load in stages.LOADS:
        made = stages.figures(stages.of(samples, load))
        assert made is not None
        assert (made.requests, made.errors) == (10, 0)
        assert list(made.stages) == ["tokenize", "queue", "tier_load", "prefill", "first_sample", "write"]
        assert made.largest_difference_ms <= stages.MOST_DIFFERENCE_MS
        assert 0 < made.server.mean_ms < 1e3 * max(one.round.duration_s for one in samples)
    assert all(one.client_core_load >= 0 and one.server_core_load >= 0 for one in samples)


async def test_through_a_sidecar_one_client_asks_and_the_sidecar_says_its_stages(tmp_path):
    samples = []
    script = Script(token_s=0.001, max_model_len=300, kv_blocks=200)
    async with (
        serving(script, is_settled=False, is_behind_sidecar=True) as served,
        bench_client.session() as http,
    ):
        target = server.Target(served.url, served.ops_url)
        document = beside.settings((), experiment.NEVER_S)
        async with beside.running(target, document, tmp_path / "sidecar.log", http) as running:
            await stages_run.measure(wish(sidecar_core=0), target, http, lambda now: None, samples, running)
    assert [(one.round.variant, one.round.repeat) for one in samples] == [("alone", 0), ("alone", 1)]
    made = stages.figures(samples)
    assert made is not None
    assert (made.requests, made.errors) == (10, 0)
    assert list(made.stages)[:3] == ["sidecar_queue", "forward", "tokenize"]
    assert list(made.stages)[-1] == "sidecar_write"
    assert made.largest_difference_ms <= stages.MOST_DIFFERENCE_MS
    assert made.stages["sidecar_queue"].p50_ms > 0


async def test_a_first_request_that_fails_ends_the_run():
    async with serving(Script(max_model_len=32)) as served, bench_client.session() as http:
        with pytest.raises(UserError, match="a first request failed: HTTP 400"):
            await stages_run.measure(
                wish(), server.Target(served.url, served.ops_url), http, lambda now: None, []
            )
