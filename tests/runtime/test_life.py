"""When an engine's silence means that it is dead."""

from firsttoken_api.state import Phase
from firsttoken_runtime.server.life import Life, Limits


def test_loading_is_live_while_it_makes_progress():
    life = Life(Limits(load_progress_s=120), now=0)
    for minute in range(1, 60):
        life.load(minute / 60, now=60.0 * minute)
        assert life.is_live(60.0 * minute + 119)
    assert not life.is_live(60.0 * 59 + 121)


def test_repeated_progress_is_no_progress():
    life = Life(Limits(load_progress_s=120), now=0)
    life.load(0.5, now=10)
    life.load(0.5, now=100)
    assert not life.is_live(131)


def test_loading_never_hangs_by_heartbeat():
    assert not Life(Limits(), now=0).has_hung(10_000, 0)


def test_a_heartbeat_is_believed_for_thirty_seconds():
    life = Life(Limits(), now=0)
    life.become_ready(now=5)
    assert not life.has_hung(34, 0)
    assert life.has_hung(36, 0)
    life.beat(now=36)
    assert not life.has_hung(60, 0)


def test_the_deadline_follows_long_steps_and_long_prompts():
    life = Life(Limits(), now=0)
    life.become_ready(now=0)
    life.beat(now=10)
    assert life.deadline_s(0) == 100
    assert life.deadline_s(8192) > 160


def test_the_first_failure_is_the_reason():
    life = Life(Limits(), now=0)
    life.fail("out of memory")
    life.fail("shutting down")
    life.become_ready(now=1)
    assert (life.phase, life.error, life.is_live(1)) == (Phase.FAILED, "out of memory", False)
