from pathlib import Path

import pytest

from builders import objectives
from firsttoken_api.state import EngineState, FlagsState, Phase
from firsttoken_sidecar import auth, drain, metrics, state, timing
from firsttoken_sidecar.inspection import Inspected
from sidecar import fakes


class Watch:
    def __init__(
        self, phase: Phase = Phase.READY, *, silence: str = "", dead: str = "", error: str = ""
    ) -> None:
        self.silence = silence
        self.is_answering = not silence
        self.is_ready = self.is_answering and not dead and phase is Phase.READY
        self.state = EngineState(phase=phase, load_progress=0.42, error=error) if self.is_answering else None
        self._dead = dead

    def why_not_live(self) -> str:
        return self._dead


class Follower:
    def __init__(self, generation: int = 1, error: str = "") -> None:
        self._report = FlagsState(generation=generation, error=error)

    def report(self) -> FlagsState:
        return self._report

    def why_not_ready(self) -> str:
        return ""


def reporter(
    watch: Watch,
    follower: Follower | None = None,
    draining: drain.Drain | None = None,
    authenticator: auth.Auth | None = None,
    ledger: timing.Ledger | None = None,
) -> state.Reporter:
    requests = drain.OpenRequests()
    return state.Reporter(
        "pod",
        watch,  # type: ignore[arg-type]
        follower or Follower(),  # type: ignore[arg-type]
        draining or drain.Drain(60, 60, requests),
        requests,
        ledger or timing.Ledger(),
        lambda: 7.0,
        authenticator=authenticator,
    )


@pytest.mark.parametrize(
    ("watch", "follower", "expected"),
    [
        (Watch(), Follower(), ""),
        (Watch(silence="refused"), Follower(), "engine does not answer: refused"),
        (Watch(Phase.LOADING), Follower(), "engine is loading (42%)"),
        (Watch(Phase.LOADING, dead="no progress"), Follower(), "engine is not alive: no progress"),
        (Watch(Phase.FAILED, error="NotEnoughMemory"), Follower(), "engine failed: NotEnoughMemory"),
        (Watch(), Follower(0), "no flags applied yet: in progress"),
        (Watch(), Follower(0, "flags.json: document"), "no flags applied yet: flags.json: document"),
        # What is in force goes on serving while something newer cannot be applied.
        (Watch(), Follower(1, "refused"), ""),
    ],
)
def test_readiness(watch: Watch, follower: Follower, expected: str) -> None:
    told = reporter(watch, follower)
    assert told.why_not_ready() == expected
    assert told.state().ready is (expected == "")


async def test_a_draining_pod_is_not_ready() -> None:
    draining = drain.Drain(0, 0, drain.OpenRequests())
    await draining.drained()
    told = reporter(Watch(), draining=draining)
    assert told.why_not_ready() == "draining"
    assert (told.state().draining, told.state().ready) == (True, False)


def test_a_pod_that_lets_nobody_in_is_not_ready_and_one_with_old_keys_is(tmp_path: Path) -> None:
    mounted = fakes.Mounts(tmp_path)
    authenticator = auth.Auth(mounted.auth, lambda: 7.0, metrics.Counts())
    told = reporter(Watch(), authenticator=authenticator)
    assert told.why_not_ready() == "no API keys: there is no keys.yaml"
    assert (told.state().ready, told.state().auth_error) == (False, "there is no keys.yaml")
    mounted.write_keys(b"[]")
    authenticator.reload()
    assert (told.why_not_ready(), told.state().auth_error) == ("", "")
    mounted.write_keys(b"- {name: a}")
    authenticator.reload()
    assert (told.state().ready, told.state().auth_error) == (True, "entry 1 (a): give either sha256 or key")


def test_state_without_an_engine_and_without_an_objective() -> None:
    told = reporter(Watch(silence="refused")).state()
    assert (told.engine, told.ttft, told.overdue, told.in_flight) == (None, None, 0, 0)


def test_what_was_decided_is_told_by_class() -> None:
    ledger = timing.Ledger()
    ledger.set_settings(objectives.settings(0.4, classes={"chat": 1.0, "batch": 8.0}))
    ledger.first_content(ledger.open(6.0, "chat"), 6.1)
    ledger.open(6.0, "chat")
    inspected = Inspected(body_hash=b"1", estimated_prompt_tokens=50)
    for now in (6.0, 6.5):
        ledger.refused(ledger.open(now, "batch", client="me", inspected=inspected), now)
    told = reporter(Watch(), ledger=ledger).state()
    assert [(each.name, each.hits, each.breaches, each.overdue) for each in told.by_class] == [
        ("chat", 1, 1, 1),
        ("batch", 0, 1, 0),
    ]
    assert (told.arrivals_total, told.overdue) == (4, 1)
    assert told.rejected_by_class == {"chat": 0, "batch": 2}
    assert told.demand_tokens_total == 50, "the tokens of the first one are known once it is explained"
    assert told.ttft is not None
    assert sum(told.ttft.counts) == 1
