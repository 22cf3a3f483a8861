"""One pod at a time, with retries; a refusal stops the line, a sick pod does not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import observed as build
from builders.observed import NOW
from firsttoken_operator import flag_rollout
from firsttoken_operator.observed import Bump, FlagsMark, Pod

HASH = "new"


def old(name: str) -> Pod:
    return build.pod(name, state=build.sidecar_state(generation=1, hash="old"))


def new(name: str) -> Pod:
    return build.pod(name, state=build.sidecar_state(generation=2, hash=HASH), mark=FlagsMark(2, 1))


def marked(name: str, attempt: int, first_ago_s: float, last_ago_s: float, error: str = "") -> Pod:
    return build.pod(
        name,
        state=build.sidecar_state(generation=1, hash="old", error=error),
        mark=FlagsMark(2, attempt),
        bump=Bump(2, NOW - first_ago_s, NOW - last_ago_s),
    )


def advance(*pods: Pod) -> flag_rollout.Progress:
    return flag_rollout.advance(pods, 2, HASH, NOW)


def test_the_first_by_name_is_marked_first_and_watched() -> None:
    progress = advance(old("b"), old("a"))
    assert progress.mark is not None
    assert (progress.mark[0].name, progress.mark[1]) == ("a", FlagsMark(2, 1))
    assert [pod.name for pod in progress.watch] == ["a"]
    assert progress.applied == 1


def test_the_second_waits_for_the_first() -> None:
    progress = advance(marked("a", 1, 0.5, 0.5), old("b"))
    assert progress.mark is None
    assert [pod.name for pod in progress.watch] == ["a"]
    assert progress.again_after_s == 1.5
    done = advance(new("a"), old("b"))
    assert done.mark is not None
    assert done.mark[0].name == "b"


def test_all_done() -> None:
    progress = advance(new("a"), new("b"))
    assert progress == flag_rollout.Progress(applied=2)


def test_a_silent_pod_is_marked_again_after_2_4_and_8_seconds() -> None:
    for attempt, wait_s in ((1, 2.0), (2, 4.0), (3, 8.0)):
        early = advance(marked("a", attempt, wait_s, wait_s - 0.1))
        assert early.mark is None
        due = advance(marked("a", attempt, wait_s, wait_s))
        assert due.mark is not None
        assert due.mark[1] == FlagsMark(2, attempt + 1)


def test_after_30_seconds_it_is_named_and_the_others_go_on() -> None:
    progress = advance(marked("a", 4, 31.0, 5.0), old("b"))
    assert [pod.name for pod in progress.stuck] == ["a"]
    assert progress.mark is not None
    assert progress.mark[0].name == "b"
    again = advance(marked("a", 5, 61.0, 30.0), old("b"))
    assert again.mark is not None
    assert again.mark[0].name == "a"  # still tried now and then


def test_a_refusal_stops_the_line() -> None:
    progress = advance(marked("a", 1, 3.0, 3.0, error="chunkTokens: 3 is too small"), old("b"))
    assert [pod.name for pod in progress.refused] == ["a"]
    assert progress.mark is None


def test_an_error_that_is_older_than_the_mark_is_no_refusal() -> None:
    progress = advance(marked("a", 1, 0.1, 0.1, error="of the settings before"))
    assert not progress.refused


def test_starting_pods_take_the_newest_by_themselves() -> None:
    starting = build.pod("a", ready=False, state=build.sidecar_state(generation=0))
    unknown = build.pod("b", ready=False)
    assert advance(starting, unknown).mark is None


def test_a_ready_pod_that_cannot_be_read_is_asked_all_the_same() -> None:
    assert advance(build.pod("a", failed_scrapes=3)).mark is not None


def test_what_was_not_read_yet_is_left_alone() -> None:
    """A new leader knows no states: it must not mark every pod."""
    assert advance(build.pod("a"), build.pod("b", failed_scrapes=1)).mark is None


@pytest.mark.parametrize(("is_ready", "generation"), [(True, 0), (False, 1)])
def test_an_engine_that_does_not_answer_is_left_alone(is_ready: bool, generation: int) -> None:
    silent = build.sidecar_state(generation).model_copy(update={"engine": None})
    assert advance(build.pod("a", ready=is_ready, state=silent)).mark is None


def test_a_mark_of_an_earlier_operator_counts_from_now() -> None:
    orphan = build.pod("a", state=build.sidecar_state(generation=1), mark=FlagsMark(2, 3))
    progress = advance(orphan)
    assert progress.mark is None
    assert not progress.stuck


@settings(max_examples=25)
@given(
    delays=st.lists(st.one_of(st.floats(0, 9), st.just(float("inf"))), min_size=1, max_size=4),
    tick=st.floats(0.2, 1.0),
)
def test_all_that_answer_switch_one_at_a_time(delays: list[float], tick: float) -> None:
    """Pods apply a mark after a drawn delay, or never."""
    now = NOW
    pods = {f"pod-{n}": old(f"pod-{n}") for n in range(len(delays))}
    applies_at: dict[str, float] = {}
    for _ in range(int(60 * len(delays) / tick) + 10):
        for name, at in applies_at.items():
            if now >= at:
                pods[name] = new(name)
        progress = flag_rollout.advance(tuple(pods.values()), 2, HASH, now)
        if progress.mark is not None:
            pod, mark = progress.mark
            first_s = pod.bump.first_s if pod.bump else now
            others = [each for each in pods.values() if each.name != pod.name and each not in progress.stuck]
            asked = [each for each in others if each.mark and each in progress.behind]
            assert not asked or pod in progress.stuck
            state = pod.state
            pods[pod.name] = build.pod(pod.name, state=state, mark=mark, bump=Bump(2, first_s, now))
            applies_at.setdefault(pod.name, now + delays[int(pod.name.removeprefix("pod-"))])
        now += tick
    for number, delay_s in enumerate(delays):
        pod = pods[f"pod-{number}"]
        has_applied = flag_rollout.has_applied(pod, 2, HASH)
        assert has_applied == (delay_s != float("inf"))


OFF = frozenset({"kv-int8"})


def keeping(name: str, ago_s: float, ready: bool = False, enabled: tuple[str, ...] = ("kv-int8",)) -> Pod:
    """Was asked so long ago to take kv-int8 back, and has it on."""
    return build.pod(
        name,
        ready=ready,
        state=build.sidecar_state(generation=1, hash="old", enabled=enabled),
        mark=FlagsMark(2, 4),
        bump=Bump(2, NOW - ago_s, NOW - 5.0),
    )


def recall(*pods: Pod, may_delete: bool = True) -> flag_rollout.Progress:
    return flag_rollout.advance(pods, 2, HASH, NOW, OFF, may_delete)


def test_a_pod_that_keeps_a_flag_on_is_deleted_once_it_is_out_of_service() -> None:
    assert recall(keeping("a", 29.0)).delete is None
    deleted = recall(keeping("a", 30.5)).delete
    assert deleted is not None
    assert deleted.name == "a"


def test_one_that_is_still_ready_is_waited_for_a_little() -> None:
    progress = recall(keeping("a", 31.0, ready=True))
    assert progress.delete is None
    assert progress.again_after_s is not None
    assert progress.again_after_s <= flag_rollout.RECALL_MARGIN_S - 1.0
    assert recall(keeping("a", 35.0, ready=True)).delete is not None


def test_a_pod_that_only_lacks_a_flag_is_not_deleted() -> None:
    assert recall(keeping("a", 99.0, enabled=("prefix-cache",))).delete is None
    assert recall(keeping("a", 99.0, enabled=())).delete is None


def test_they_are_deleted_one_at_a_time() -> None:
    pods = keeping("b", 99.0), keeping("a", 99.0)
    deleted = recall(*pods).delete
    assert deleted is not None
    assert deleted.name == "a"
    waiting = recall(*pods, may_delete=False)
    assert waiting.delete is None
    assert [pod.name for pod in waiting.stuck] == ["a", "b"]


def test_a_refusal_deletes_nothing() -> None:
    refusing = build.pod(
        "a",
        state=build.sidecar_state(1, "old", error="kv-int8: no", enabled=("kv-int8",)),
        mark=FlagsMark(2, 4),
        bump=Bump(2, NOW - 99.0, NOW - 5.0),
    )
    progress = recall(refusing)
    assert [pod.name for pod in progress.refused] == ["a"]
    assert progress.delete is None


def test_the_pod_that_is_deleted_is_not_asked_again() -> None:
    sick = keeping("a", 99.0)
    overdue = build.pod(
        "a", ready=False, state=sick.state, mark=sick.mark, bump=Bump(2, NOW - 99.0, NOW - 60.0)
    )
    progress = recall(overdue, old("b"))
    assert progress.delete is not None
    assert progress.mark is not None
    assert progress.mark[0].name == "b"
