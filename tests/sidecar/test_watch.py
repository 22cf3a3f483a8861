import logging

import pytest

from firsttoken_api.state import EngineState, FlagsState, Phase
from firsttoken_sidecar import engines, watch


class Scripted:
    """An engine whose next looks are given."""

    def __init__(self) -> None:
        self.next: engines.Probe | None = None

    async def probe(self) -> engines.Probe:
        if self.next is None:
            raise engines.EngineUnreachableError("connection refused")
        return self.next


def probe(phase: Phase = Phase.READY, reason: str = "") -> engines.Probe:
    return engines.Probe(not reason, reason, EngineState(phase=phase))


class Rig:
    def __init__(self) -> None:
        self.engine = Scripted()
        self.now = 0.0
        self.watch = watch.Watch(self.engine, lambda: self.now)  # type: ignore[arg-type]

    async def look(self, seen: engines.Probe | None, after_s: float = 0.5) -> watch.Watch:
        self.engine.next = seen
        self.now += after_s
        await self.watch.look()
        return self.watch


async def test_before_the_first_answer() -> None:
    rig = Rig()
    assert (rig.watch.is_answering, rig.watch.is_ready, rig.watch.state) == (False, False, None)
    assert rig.watch.why_not_live()
    await rig.look(None)
    assert rig.watch.why_not_live() == "connection refused"


async def test_a_loading_engine_is_alive_and_not_ready() -> None:
    seen = await Rig().look(probe(Phase.LOADING))
    assert (seen.is_answering, seen.is_ready, seen.why_not_live()) == (True, False, "")


async def test_stalled_loading_is_not_alive() -> None:
    seen = await Rig().look(probe(Phase.LOADING, "no progress for 120 s"))
    assert (seen.is_ready, seen.why_not_live()) == (False, "no progress for 120 s")


async def test_a_short_silence_is_not_death_but_not_ready() -> None:
    rig = Rig()
    await rig.look(probe())
    seen = await rig.look(None)
    assert (seen.is_answering, seen.is_ready, seen.state, seen.why_not_live()) == (False, False, None, "")
    seen = await rig.look(None, after_s=watch.SILENCE_LIMIT_S)
    assert seen.why_not_live() == "connection refused"
    seen = await rig.look(probe())
    assert (seen.is_ready, seen.why_not_live()) == (True, "")


async def test_a_watch_that_hangs_is_noticed() -> None:
    rig = Rig()
    await rig.look(probe())
    rig.now += watch.SILENCE_LIMIT_S + 1
    assert rig.watch.why_not_live()


async def test_restarts_are_counted() -> None:
    rig = Rig()
    assert (await rig.look(probe(Phase.LOADING))).starts == 1
    assert (await rig.look(probe(Phase.READY))).starts == 1
    assert (await rig.look(probe(Phase.LOADING))).starts == 2, "between two looks"
    await rig.look(None)
    assert (await rig.look(probe(Phase.READY))).starts == 3


async def test_the_answer_to_new_flags_counts_at_once() -> None:
    rig = Rig()
    rig.watch.note_flags(FlagsState(generation=1))
    await rig.look(probe())
    rig.watch.note_flags(FlagsState(generation=2))
    assert rig.watch.state is not None
    assert rig.watch.state.flags.generation == 2
    assert rig.watch.is_ready


async def test_becoming_ready_is_told() -> None:
    rig = Rig()
    for seen, expected in [(None, False), (probe(Phase.LOADING), False), (probe(), True), (probe(), False)]:
        await rig.look(seen)
        assert rig.watch.turned_ready.is_set() is expected
        rig.watch.turned_ready.clear()


async def test_silence_is_logged_when_it_begins_and_rarely_after(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "firsttoken_sidecar")
    rig = Rig()
    for seen, after_s in [
        (None, 1),
        (None, 99),
        (probe(), 1),
        (None, 1),
        (None, 1),
        (None, 30),
        (None, 1),
        (probe(), 1),
    ]:
        await rig.look(seen, after_s)
    assert [record.getMessage() for record in caplog.records] == [
        "engine answers",
        "engine stopped answering",
        "engine still does not answer",
        "engine answers",
    ]


async def test_a_loading_engine_is_told() -> None:
    told: list[int] = []
    rig = Rig()
    rig.watch = watch.Watch(rig.engine, lambda: rig.now, lambda: told.append(1))  # type: ignore[arg-type]
    await rig.look(probe())
    await rig.look(None)
    assert not told
    await rig.look(probe(Phase.LOADING))
    assert told
