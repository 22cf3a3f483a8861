import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api import errors
from firsttoken_sidecar import limits
from firsttoken_sidecar.caller import Caller


def caller(requests: int | None = None, tokens: int | None = None, name: str = "a") -> Caller:
    return Caller(name=name, tenant=name, requests_per_minute=requests, tokens_per_minute=tokens)


def following(*callers: Caller) -> limits.Limits:
    known = limits.Limits()
    known.follow(callers, 0.0)
    return known


def refused_for_s(known: limits.Limits, asks: Caller, tokens: int, now: float) -> int:
    with pytest.raises(errors.RateLimitedError) as caught:
        known.take(asks, tokens, now)
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


def tell(said: limits.Limits, hears: limits.Limits, now: float) -> None:
    """One replica reads another one's /state."""
    hears.taken_elsewhere("peer", said.uses(), now)


def test_requests_of_a_minute_come_at_once_or_spread() -> None:
    asks = caller(requests=3)
    known = following(asks)
    for _ in range(3):
        known.take(asks, 10**9, 100.0)
    assert refused_for_s(known, asks, 1, 100.0) == 20
    assert refused_for_s(known, asks, 1, 119.5) == 1
    known.take(asks, 1, 120.0)
    assert refused_for_s(known, asks, 1, 120.0) == 20


def test_a_refused_request_takes_nothing_of_either_limit() -> None:
    asks = caller(requests=2, tokens=100)
    known = following(asks)
    known.take(asks, 90, 0.0)
    assert refused_for_s(known, asks, 70, 0.0) == 36
    known.take(asks, 10, 0.0)
    assert refused_for_s(known, asks, 1, 0.0) == 30


def test_what_was_used_in_the_end_is_what_counts() -> None:
    asks = caller(tokens=600)
    known = following(asks)
    charge = known.take(asks, 600, 0.0)
    charge.settle(100)
    charge.settle(0)
    known.take(asks, 500, 0.0).settle(1100)
    # 600 in debt: ten a second.
    assert refused_for_s(known, asks, 1, 0.0) == 61


def test_one_larger_than_a_minute_waits_for_a_full_bucket() -> None:
    asks = caller(tokens=60)
    known = following(asks)
    known.take(asks, 10, 0.0)
    assert refused_for_s(known, asks, 1000, 0.0) == 10
    known.take(asks, 1000, 10.0)
    assert refused_for_s(known, asks, 1, 10.0) == 941


def test_keys_do_not_share_and_those_without_a_limit_have_none() -> None:
    first, second, free = caller(requests=1, name="a"), caller(requests=1, name="b"), caller(name="c")
    known = following(first, second, free)
    known.take(first, 1, 0.0)
    known.take(second, 1, 0.0)
    for _ in range(1000):
        known.take(free, 10**9, 0.0).settle(0)
    assert known.uses().keys() == {"a", "b"}


def test_of_a_changed_limit_as_much_is_used_as_was_of_the_old_one() -> None:
    known = following(caller(requests=100))
    for _ in range(99):
        known.take(caller(requests=100), 1, 0.0)
    known.follow([caller(requests=101)], 0.0)
    known.take(caller(requests=101), 1, 0.0)
    known.take(caller(requests=101), 1, 0.0)
    assert refused_for_s(known, caller(requests=101), 1, 0.0) == 1
    known.follow([caller(requests=50)], 0.0)
    assert refused_for_s(known, caller(requests=50), 1, 0.0) == 63
    known.follow([caller()], 0.0)
    known.take(caller(), 1, 0.0)


def test_a_key_that_was_gone_starts_anew() -> None:
    known = following(caller(requests=1))
    charge = known.take(caller(requests=1), 1, 0.0)
    known.follow([], 0.0)
    known.follow([caller(requests=1)], 0.0)
    known.take(caller(requests=1), 1, 0.0)
    charge.settle(10**6)


def test_a_clock_that_stands_or_falls_back_gives_nothing() -> None:
    known = following(caller(requests=1))
    known.take(caller(requests=1), 1, 50.0)
    assert refused_for_s(known, caller(requests=1), 1, 40.0) == 60


def test_what_is_taken_at_a_peer_counts_here_once() -> None:
    asks = caller(requests=4, tokens=1000)
    here, there = following(asks), following(asks)
    tell(there, here, 0.0)
    there.take(asks, 100, 0.0).settle(300)
    there.take(asks, 600, 0.0).settle(0)
    for _ in range(3):
        tell(there, here, 0.0)
    here.take(asks, 700, 0.0)
    assert refused_for_s(here, asks, 1, 0.0) == 1, "of the tokens none is left"
    here.take(asks, 1, 1.0)
    assert refused_for_s(here, asks, 1, 1.0) > 1, "of the requests neither"
    # What was returned later is given back later.
    charge = there.take(asks, 500, 60.0)
    tell(there, here, 60.0)
    charge.settle(0)
    tell(there, here, 60.0)
    here.take(asks, 1000, 120.0)


def test_of_a_peer_that_is_new_or_has_started_again_only_what_comes_counts() -> None:
    asks = caller(requests=3)
    here, old = following(asks), following(asks)
    for _ in range(3):
        old.take(asks, 1, 0.0)
    tell(old, here, 0.0)
    restarted = following(asks)
    tell(restarted, here, 0.0)
    restarted.take(asks, 1, 0.0)
    tell(restarted, here, 0.0)
    here.take(asks, 1, 0.0)
    here.take(asks, 1, 0.0)
    assert refused_for_s(here, asks, 1, 0.0) == 20


def test_what_is_told_late_is_worth_a_minute_at_most_and_unknown_keys_nothing() -> None:
    asks = caller(requests=60)
    here, there = following(asks), following(caller(requests=6000), caller(requests=1, name="other"))
    tell(there, here, 0.0)
    for second in range(1000):
        there.take(caller(requests=6000), 1, float(second))
    there.take(caller(requests=1, name="other"), 1, 1000.0)
    tell(there, here, 1000.0)
    assert refused_for_s(here, asks, 1, 1000.0) == 1
    assert here.uses() == {}


def test_peers_that_are_gone_are_forgotten() -> None:
    known = following(caller(requests=1))
    for number in range(50):
        known.taken_elsewhere(f"10.0.0.{number}", {}, float(number))
    known.taken_elsewhere("10.0.1.1", {}, limits.FORGOTTEN_S + 100)
    assert len(known._peers) == 1


@given(
    per_minute=st.integers(1, 200),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 300)), min_size=1, max_size=60),
)
def test_never_more_than_two_minutes_worth_in_a_minute_and_retry_after_is_honest(
    per_minute: int, steps: list[tuple[float, int]]
) -> None:
    asks = caller(tokens=per_minute)
    known = following(asks)
    now = 0.0
    taken: list[tuple[float, int]] = []
    for pause_s, tokens in steps:
        now += pause_s
        tokens = min(tokens, per_minute)
        try:
            known.take(asks, tokens, now)
        except errors.RateLimitedError as refusal:
            now += float(refusal.headers()["Retry-After"])
            known.take(asks, tokens, now)
        taken.append((now, tokens))
    in_last_minute = sum(tokens for at_s, tokens in taken if at_s > now - limits.MINUTE_S)
    assert in_last_minute <= 2 * per_minute + 1
