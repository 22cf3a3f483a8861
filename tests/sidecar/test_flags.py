import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from firsttoken_api.hot_settings import ClassSettings, HotSettings, Objective, RouteSettings
from firsttoken_api.state import FlagsState, Phase
from firsttoken_sidecar import engine_firsttoken, engines, flags, metrics, watch
from sidecar import fakes


class Rig:
    """A follower that is ticked by hand, with a clock that is set by hand."""

    def __init__(self, engine: fakes.FakeEngine, adapter: engines.Engine, folder: Path) -> None:
        self.engine = engine
        self.mounts = fakes.Mounts(folder)
        self.now = 100.0
        self.objectives: list[Objective] = []
        self.counts = metrics.Counts()
        self.watch = watch.Watch(adapter, lambda: self.now)
        self.follower = self.fresh(adapter)

    def fresh(self, adapter: engines.Engine) -> flags.Follower:
        return flags.Follower(
            adapter,
            self.watch,
            self.mounts.flags,
            self.mounts.pod,
            lambda: self.now,
            lambda settings: self.objectives.append(settings.objective),
            self.counts,
        )

    async def tick(self, *, after_s: float = 0.0) -> FlagsState:
        self.now += after_s
        await self.watch.look()
        await self.follower.tick()
        return self.follower.report()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with fakes.engine() as engine, aiohttp.ClientSession() as session:
        yield Rig(
            engine, engine_firsttoken.FirsttokenEngine(session, engine.api_url, engine.ops_url), tmp_path
        )


async def test_a_new_pod_takes_the_newest(rig: Rig) -> None:
    content = fakes.document(7)
    rig.mounts.write_flags(content)
    report = await rig.tick()
    assert (report.generation, report.error) == (7, "")
    assert report.enabled == ("chunked-prefill",)
    assert rig.engine.puts == [content], "as it was written"
    await rig.tick()
    assert len(rig.engine.puts) == 1, "applied once"


async def test_classes_and_what_a_newer_operator_adds_reach_the_engine_as_written(rig: Rig) -> None:
    classes = (
        ClassSettings(name="interactive", priority=10, ttft_p99_s=1),
        ClassSettings(name="b", ttft_p99_s=8),
    )
    settings = HotSettings(
        generation=3,
        flags=(),
        objective=Objective(ttft_p95_s=0.5, tpot_p95_s=0.05),
        classes=classes,
        default_class="b",
        routes=(RouteSettings(name="intent", request_class="interactive", max_tokens=8),),
    )
    content = settings.sealed().to_json().removesuffix("}").encode() + b',"later": {"x": [1]} }\n'
    rig.mounts.write_flags(content)
    report = await rig.tick()
    assert (report.generation, report.error) == (3, "")
    assert rig.engine.puts == [content]
    assert rig.objectives == [Objective(ttft_p95_s=0.5, tpot_p95_s=0.05)]


async def test_names_that_do_not_agree_are_kept_from_the_engine(rig: Rig) -> None:
    content = fakes.document(1).replace(b'"hash"', b'"default_class":"urgent","hash"')
    rig.mounts.write_flags(content)
    report = await rig.tick()
    assert "default_class is 'urgent', classes are none" in report.error
    assert rig.engine.puts == []


async def test_a_later_one_waits_until_the_annotation_names_it(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    rig.mounts.write_flags(fakes.document(2, enabled=False))
    assert (await rig.tick()).generation == 1
    rig.mounts.annotate("1.5")
    assert (await rig.tick()).generation == 1
    rig.mounts.annotate("2.1")
    report = await rig.tick()
    assert (report.generation, report.enabled, report.error) == (2, (), "")


async def test_the_annotation_may_come_before_the_document(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    rig.mounts.annotate("2.1")
    assert (await rig.tick()).generation == 1
    rig.mounts.write_flags(fakes.document(2))
    assert (await rig.tick()).generation == 2


async def test_a_bad_document_keeps_the_last_good_one(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    rig.mounts.annotate("2.1")
    rig.mounts.write_flags(b'{"generation": "two"}')
    report = await rig.tick()
    assert report.generation == 1
    assert "flags.json: generation" in report.error
    rig.mounts.write_flags(fakes.document(2))
    report = await rig.tick()
    assert (report.generation, report.error) == (2, "")
    assert rig.counts.flags_errors[metrics.FlagsErrorReason.DOCUMENT] == 1


async def test_a_document_that_goes_away_is_said_and_changes_nothing(rig: Rig) -> None:
    assert "no " in (await rig.tick()).error
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    (rig.mounts.flags / "flags.json").unlink()
    report = await rig.tick()
    assert report.generation == 1
    assert report.error.startswith("no ")


async def test_what_the_engine_refuses_is_asked_again_only_after_a_change(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    rig.engine.refuse_flags = "unknown flag warp-drive"
    rig.mounts.write_flags(fakes.document(2))
    rig.mounts.annotate("2.1")
    report = await rig.tick()
    assert (report.generation, report.error) == (1, "unknown flag warp-drive")
    for _ in range(3):
        await rig.tick(after_s=60)
    assert len(rig.engine.puts) == 2
    rig.mounts.annotate("2.2")
    await rig.tick()
    assert len(rig.engine.puts) == 3
    rig.engine.refuse_flags = ""
    rig.mounts.annotate("2.3")
    report = await rig.tick()
    assert (report.generation, report.error) == (2, "")
    assert rig.counts.flags_errors[metrics.FlagsErrorReason.REFUSED] == 2


async def test_an_engine_that_fails_is_asked_again_later_and_later(rig: Rig) -> None:
    rig.engine.fail_flags = 3
    rig.mounts.write_flags(fakes.document(1))
    report = await rig.tick()
    assert "500" in report.error
    await rig.tick(after_s=0.1)
    assert len(rig.engine.puts) == 1
    await rig.tick(after_s=0.11)
    assert len(rig.engine.puts) == 2
    await rig.tick(after_s=0.21)
    assert len(rig.engine.puts) == 2, "0.4 s now"
    await rig.tick(after_s=0.2)
    assert len(rig.engine.puts) == 3
    report = await rig.tick(after_s=1.0)
    assert (report.generation, report.error) == (1, "")


async def test_settings_come_back_after_an_engine_restart(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    await rig.engine.stop()
    assert (await rig.tick()).generation == 0
    rig.engine.flags = FlagsState()
    rig.engine.phase = Phase.LOADING
    await rig.engine.start()
    await rig.tick()
    assert len(rig.engine.puts) == 1, "not while it loads"
    rig.engine.phase = Phase.READY
    assert (await rig.tick()).generation == 1
    assert len(rig.engine.puts) == 2


async def test_a_refusal_is_forgotten_when_the_engine_restarts(rig: Rig) -> None:
    rig.engine.refuse_flags = "no"
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    rig.engine.refuse_flags = ""
    await rig.engine.stop()
    await rig.tick()
    await rig.engine.start()
    assert (await rig.tick()).generation == 1


async def test_the_objective_changes_with_the_generation(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1, slo_s=0.5))
    await rig.tick()
    rig.mounts.write_flags(fakes.document(2, slo_s=0.2))
    await rig.tick()
    assert rig.objectives[-1].ttft_p95_s == 0.5
    rig.mounts.annotate("2.1")
    await rig.tick()
    assert rig.objectives[-1].ttft_p95_s == 0.2


async def test_a_sidecar_that_restarts_leaves_its_engine_alone(rig: Rig) -> None:
    """The mount may already hold the next generation, whose turn here has not come."""
    rig.engine.flags = FlagsState(generation=3)
    rig.mounts.annotate("3.1")
    rig.mounts.write_flags(fakes.document(4, slo_s=0.3))
    report = await rig.tick()
    assert (report.generation, report.error, rig.engine.puts) == (3, "", [])
    assert rig.objectives[-1].ttft_p95_s == 0.3, "any objective is better than none"


async def test_a_patch_reaches_the_engine_in_half_a_second() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        sidecar.mounts.write_flags(fakes.document(2, enabled=False))
        await asyncio.sleep(0.3)
        assert engine.flags.generation == 1
        started = time.monotonic()
        sidecar.mounts.annotate("2.1")
        state = await sidecar.until(lambda state: state.flags.generation == 2)
        assert time.monotonic() - started < 0.5
        assert (state.ready, state.flags.enabled) == (True, ())


async def put_with_a_flag_on(rig: Rig) -> None:
    """Generation 1 is in force with the flag on; generation 2, named, has it off, and the engine hangs."""
    rig.mounts.write_flags(fakes.document(1))
    await rig.tick()
    assert rig.watch.state is not None
    assert rig.watch.state.flags.enabled == ("chunked-prefill",)
    rig.engine.fail_flags = 10**6
    rig.mounts.write_flags(fakes.document(2, enabled=False))


async def test_a_flag_that_stays_on_takes_the_pod_out_of_service(rig: Rig) -> None:
    await put_with_a_flag_on(rig)
    await rig.tick(after_s=100)
    assert not rig.follower.why_not_ready(), "its turn has not come"
    rig.mounts.annotate("2.1")
    await rig.tick()
    await rig.tick(after_s=flags.RECALL_S - 1)
    assert not rig.follower.why_not_ready()
    await rig.tick(after_s=1)
    assert "chunked-prefill is to be off and still on after 30 s" in rig.follower.why_not_ready()
    assert "500" in rig.follower.why_not_ready()
    rig.engine.fail_flags = 0
    await rig.tick(after_s=flags.LONGEST_RETRY_S)
    assert not rig.follower.why_not_ready(), "taken back late is taken back"


async def test_another_try_does_not_start_the_time_anew(rig: Rig) -> None:
    await put_with_a_flag_on(rig)
    for attempt in range(1, 5):
        rig.mounts.annotate(f"2.{attempt}")
        await rig.tick(after_s=10)
    assert rig.follower.why_not_ready()


async def test_a_flag_that_is_to_go_on_is_no_reason_to_stop_serving(rig: Rig) -> None:
    rig.mounts.write_flags(fakes.document(1, enabled=False))
    await rig.tick()
    rig.engine.fail_flags = 10**6
    rig.mounts.write_flags(fakes.document(2))
    rig.mounts.annotate("2.1")
    await rig.tick()
    await rig.tick(after_s=100)
    assert rig.follower.error
    assert not rig.follower.why_not_ready()


async def test_a_refusal_leaves_the_pod_in_service(rig: Rig) -> None:
    """Whoever takes its place would refuse the same document."""
    await put_with_a_flag_on(rig)
    rig.engine.fail_flags = 0
    rig.engine.refuse_flags = "params.chunkTokens: 3"
    rig.mounts.annotate("2.1")
    await rig.tick()
    await rig.tick(after_s=100)
    assert rig.follower.error == "params.chunkTokens: 3"
    assert not rig.follower.why_not_ready()


async def test_the_pod_says_so_and_serves_again_once_the_flag_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "RECALL_S", 0.2)
    async with fakes.engine() as engine, fakes.beside(engine, flags=fakes.document(1)) as beside:
        engine.fail_flags = 10**6
        beside.mounts.write_flags(fakes.document(2, enabled=False))
        beside.mounts.annotate("2.1")
        await beside.until(lambda state: not state.ready, 10.0)
        async with beside.client.get(beside.ops("/readyz")) as probe:
            assert probe.status == 503
            assert "chunked-prefill is to be off" in await probe.text()
        async with beside.client.get(beside.ops("/engine/livez")) as probe:
            assert probe.status == 200, "nothing is restarted for it"
        engine.fail_flags = 0
        state = await beside.until(lambda state: state.ready, 20.0)
        assert state.flags.generation == 2


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_it_ends_also_when_the_engine_becomes_ready_at_that_moment(rig: Rig, turns: int) -> None:
    following = asyncio.create_task(rig.follower.run())
    await asyncio.sleep(0.01)
    rig.watch.turned_ready.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait([following], timeout=5)
    assert done == {following}
