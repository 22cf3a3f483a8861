"""What one peer's last look and failures mean for the next request."""

import pytest

from firsttoken_api.state import LoadState, SidecarState
from firsttoken_sidecar import peer

READY = SidecarState(pod="chat-1", ready=True)


def seen(state: SidecarState = READY, now: float = 100.0) -> peer.Peer:
    fresh = peer.Peer("10.0.0.2")
    fresh.seen(state, LoadState(), now, now)
    return fresh


@pytest.mark.parametrize(
    "state",
    [
        SidecarState(ready=False),
        SidecarState(ready=True, draining=True),
        SidecarState(ready=True, evaluating=True),
    ],
)
def test_who_starts_drains_or_is_under_test_gets_nothing(state: SidecarState) -> None:
    assert seen(READY).is_accepting(100.0)
    assert not seen(state).is_accepting(100.0)


def test_who_was_never_seen_or_not_lately_gets_nothing() -> None:
    assert not peer.Peer("10.0.0.2").is_accepting(100.0)
    assert seen().is_accepting(100.0 + peer.STATE_MAX_AGE_S)
    assert not seen().is_accepting(100.1 + peer.STATE_MAX_AGE_S)


def test_each_failure_in_a_row_sets_aside_for_twice_as_long() -> None:
    failing = seen()
    now = 100.0
    lengths = []
    for _ in range(8):
        failing.failed(now)
        lengths.append(failing.aside_until_s - now)
        assert not failing.is_accepting(now)
        assert not failing.is_due(failing.aside_until_s - 0.01, 0.0)
        now = failing.aside_until_s
        assert failing.is_due(now, 0.0)
    assert lengths[:3] == pytest.approx([0.5, 1.0, 2.0])
    assert lengths[-1] == pytest.approx(peer.LONGEST_ASIDE_S)
    failing.seen(READY, None, now, now)
    failing.failed(now)
    assert failing.aside_until_s == pytest.approx(now + peer.FIRST_ASIDE_S)


def test_many_requests_that_fail_at_once_are_one_failure() -> None:
    failing = seen()
    for _ in range(50):
        failing.failed(100.0)
    assert failing.aside_until_s == pytest.approx(100.0 + peer.FIRST_ASIDE_S)


def test_long_silence_means_gone_and_an_answer_back_again() -> None:
    silent = seen()
    silent.failed(100.0 + peer.SILENT_S - 0.1)
    assert not silent.gone.is_set()
    silent.failed(100.0 + peer.SILENT_S + 5.0)
    assert silent.gone.is_set()
    silent.seen(READY, None, 120.0, 120.0)
    assert not silent.gone.is_set()


def test_a_peer_that_never_answered_is_gone_after_as_long() -> None:
    silent = peer.Peer("10.0.0.2")
    silent.failed(100.0)
    assert not silent.gone.is_set()
    silent.failed(100.0 + peer.SILENT_S)
    assert silent.gone.is_set()


def test_what_was_sent_counts_until_a_later_look_shows_it() -> None:
    busy = seen(now=100.0)
    busy.sent(1, 300, 100.01)
    busy.sent(2, 500, 100.05)
    assert busy.unseen_tokens() == 800
    # This look began before the second was sent.
    busy.seen(READY, None, 100.04, 100.06)
    assert busy.unseen_tokens() == 500
    busy.seen(READY, None, 100.2, 100.21)
    assert busy.unseen_tokens() == 0


def test_what_is_answered_waits_no_more() -> None:
    busy = seen(now=100.0)
    busy.sent(1, 300, 100.01)
    busy.sent(2, 500, 100.01)
    busy.answers(1)
    busy.answers(1)
    assert busy.unseen_tokens() == 500
