import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api import errors
from firsttoken_sidecar import limits
from firsttoken_sidecar.caller import Caller


def caller(requests: int | None = None, tokens: int | None = None, name: str = "a") -> Caller:
    return Caller(name=name, tenant=name, requests_per_minute=requests, tokens_per_minute=tokens)


def refused_for_s(known: limits.Limits, asks: Caller, tokens: int, now: float) -> int:
    with pytest.raises(errors.RateLimitedError) as caught:
        known.take(asks, tokens, now)
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


def test_requests_of_a_minute_come_at_once_or_spread() -> None:
    known = limits.Limits()
    asks = caller(requests=3)
    for _ in range(3):
        known.take(asks, 10**9, 100.0)
    assert refused_for_s(known, asks, 1, 100.0) == 20
    assert refused_for_s(known, asks, 1, 119.5) == 1
    known.take(asks, 1, 120.0)
    assert refused_for_s(known, asks, 1, 120.0) == 20


def test_a_refused_request_takes_nothing_of_either_limit() -> None:
    known = limits.Limits()
    asks = caller(requests=2, tokens=100)
    known.take(asks, 90, 0.0)
    assert refused_for_s(known, asks, 70, 0.0) == 36
    known.take(asks, 10, 0.0)
    assert refused_for_s(known, asks, 1, 0.0) == 30


def test_what_was_used_in_the_end_is_what_counts() -> None:
    known = limits.Limits()
    asks = caller(tokens=600)
    charge = known.take(asks, 600, 0.0)
    charge.settle(100)
    charge.settle(0)
    known.take(asks, 500, 0.0).settle(1100)
    # 600 in debt: ten a second.
    assert refused_for_s(known, asks, 1, 0.0) == 61


def test_one_larger_than_a_minute_waits_for_a_full_bucket() -> None:
    known = limits.Limits()
    asks = caller(tokens=60)
    known.take(asks, 10, 0.0)
    assert refused_for_s(known, asks, 1000, 0.0) == 10
    known.take(asks, 1000, 10.0)
    assert refused_for_s(known, asks, 1, 10.0) == 941


def test_keys_do_not_share_and_those_without_a_limit_have_none() -> None:
    known = limits.Limits()
    known.take(caller(requests=1, name="a"), 1, 0.0)
    known.take(caller(requests=1, name="b"), 1, 0.0)
    for _ in range(1000):
        known.take(caller(name="c"), 10**9, 0.0).settle(0)


def test_a_changed_limit_holds_at_once_and_a_key_that_came_back_starts_anew() -> None:
    known = limits.Limits()
    for _ in range(100):
        known.take(caller(requests=100), 1, 0.0)
    refused_for_s(known, caller(requests=6000), 1, 0.0)
    known.take(caller(requests=6000), 1, 0.01)
    known.keep_only(["b"])
    known.take(caller(requests=1), 1, 0.01)
    # Lowered: no more than the new limit is left of the old one.
    known.take(caller(requests=1000), 1, 60.0)
    known.take(caller(requests=1), 1, 60.0)
    refused_for_s(known, caller(requests=1), 1, 60.0)


def test_a_clock_that_stands_or_falls_back_gives_nothing() -> None:
    known = limits.Limits()
    known.take(caller(requests=1), 1, 50.0)
    assert refused_for_s(known, caller(requests=1), 1, 40.0) == 60


@given(
    per_minute=st.integers(1, 200),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 300)), min_size=1, max_size=60),
)
def test_never_more_than_two_minutes_worth_in_a_minute_and_retry_after_is_honest(
    per_minute: int, steps: list[tuple[float, int]]
) -> None:
    known = limits.Limits()
    asks = caller(tokens=per_minute)
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
