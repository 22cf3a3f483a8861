"""Whole experiments against a server with a fake engine."""

import asyncio

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import ending, experiment, exposition, load, rounds, server, workload
from runtime.fake_engine import Script
from runtime.serving import Served, serving

REQUESTS = tuple(workload.Request(tuple(range(65, 70 + n)), 3) for n in range(5))


def wanted(*variants: experiment.Variant) -> experiment.Experiment:
    return experiment.Experiment(
        name="x",
        title="X",
        variants=variants or (experiment.Variant("off", ()), experiment.Variant("on", ("paged-kv",))),
        lanes=(workload.closed(REQUESTS, 2),),
        server=experiment.ServerNeeds(max_model_len=64, kv_tokens=64),
    )


async def run(served: Served, made: experiment.Experiment, **changes: object):
    async with bench_client.session() as http:
        target = server.Target(served.url, served.ops_url)
        done = await rounds.run(made, target, http, **({"repeats": 2, "time_limit_s": 30} | changes))
    assert done.ended == ""
    return done.rounds


def test_the_order_turns_round():
    assert list(rounds.order("ab", 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


async def test_variants_are_interleaved_and_in_force():
    seen = []
    async with serving() as served:
        generation = []

        def report(progress: rounds.Progress) -> None:
            seen.append((progress.variant, progress.repeat, progress.done, progress.total))
            generation.append(served.service.client.flags.generation)

        done = await run(served, wanted(), report=report)
        assert (await served.state())["flags"]["enabled"] == []
    assert [(one.variant, one.repeat) for one in done] == [("off", 0), ("on", 0), ("on", 1), ("off", 1)]
    assert all(one.is_complete and len(one.records) == 5 for one in done)
    assert not any(record.error for one in done for record in one.records)
    assert [one.preemptions for one in done] == [0, 0, 0, 0]
    assert seen[:6] == [("off", 0, n, 5) for n in range(6)]
    assert sorted(set(generation)) == [1, 2, 3, 4]


async def test_generations_rise_above_what_is_in_force():
    async with serving() as served:
        await run(served, wanted(), repeats=1)
        await run(served, wanted(), repeats=1)
        assert (await served.state())["flags"]["generation"] == 4


async def test_flags_that_are_refused_end_the_run():
    async with serving(Script(flags_error="flag 'paged-kv' cannot")) as served:
        with pytest.raises(UserError, match="cannot"):
            await run(served, wanted())


async def test_a_flag_that_is_not_built_is_refused_before_anything_is_sent():
    async with serving() as served:
        with pytest.raises(UserError, match="not built"):
            await run(served, wanted(experiment.Variant("x", ("imaginary",))))
        assert (await served.state())["flags"]["generation"] == 0


async def test_a_variant_may_have_a_load_and_a_salt_of_its_own():
    own = workload.closed(REQUESTS[:2], 1)
    async with serving() as served:
        made = wanted(experiment.Variant("off", ()), experiment.Variant("own", ("paged-kv",), lanes=(own,)))
        done = await run(served, made, repeats=1)
    assert [len(one.records) for one in done] == [5, 2]


async def test_what_was_measured_when_it_was_stopped_is_there():
    async with serving(Script(token_s=0.01)) as served, bench_client.session() as http:
        task = asyncio.current_task()
        assert task is not None

        def stop(progress: rounds.Progress) -> None:
            if (progress.variant, progress.done) == ("on", 2):
                task.cancel()

        target = server.Target(served.url, served.ops_url)
        done = await rounds.run(wanted(), target, http, repeats=2, time_limit_s=30, report=stop)
    assert [(one.variant, one.repeat) for one in done.rounds] == [("off", 0)]
    assert done.ended == ending.STOPPED
    assert task.cancelling() == 0


def test_counters_are_differences():
    outcome = load.Outcome((), 1.0, is_complete=True, send_delay_s=0.0)
    before = {
        "firsttoken_engine_kv_live_slot_seconds_total": 10.0,
        "firsttoken_engine_kv_needed_slot_seconds_total": 11.0,
        "firsttoken_engine_kv_allocated_slot_seconds_total": 12.0,
        "vllm:num_preemptions_total": 3.0,
        exposition.LOOKED_UP: 100.0,
        exposition.FOUND: 60.0,
        f"{exposition.FOUND_BY_TIER}/device": 40.0,
        f"{exposition.FOUND_BY_TIER}/host": 20.0,
    }
    after = {name: 2 * value for name, value in before.items()}
    made = rounds.round_of("v", 0, outcome, before, after)
    assert made.slots is not None
    assert (made.slots.live, made.slots.needed, made.slots.allocated) == (10.0, 11.0, 12.0)
    assert made.preemptions == 3
    assert made.reuse is not None
    assert (made.reuse.looked_up, dict(made.reuse.found)) == (100.0, {"device": 40.0, "host": 20.0})
    assert rounds.round_of("v", 0, outcome, {}, after).slots is None
