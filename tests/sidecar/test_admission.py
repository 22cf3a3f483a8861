"""The rule: a first token within the limit, room that was promised, shares, and what no wait can help."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar.admission import Admitted, Estimate, Facts, Reason, Refused, decide


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {"age_s": 0.0, "expected_s": 0.5, "base_s": 0.2, "alone_s": 0.1, "spread": 0.0}
    known |= changes
    return Facts(**{"overtaken_s": known["expected_s"]} | known)


def reason(**changes: Any) -> Reason | None:
    answer = decide(facts(**changes), 1.0)
    return answer.reason if isinstance(answer, Refused) else None


def test_within_the_limit_is_welcome_and_past_it_is_not() -> None:
    assert reason() is None
    assert reason(expected_s=1.0) is None
    assert reason(expected_s=1.01) is Reason.OBJECTIVE


def test_what_estimates_err_by_and_what_has_passed_count() -> None:
    assert reason(expected_s=0.9, spread=0.2) is Reason.OBJECTIVE
    assert reason(expected_s=0.9, age_s=0.2) is Reason.OBJECTIVE
    assert reason(expected_s=0.6, overtaken_s=1.2) is Reason.OBJECTIVE
    answer = decide(facts(expected_s=0.64, spread=0.1, age_s=0.1), 1.0)
    assert answer.estimate.expected_s == pytest.approx(0.74)
    assert answer.estimate.likely_s == pytest.approx(0.82)


def test_a_tenant_over_its_share_may_use_a_part_of_the_room() -> None:
    assert reason(expected_s=0.6, part=0.5) is None
    assert reason(expected_s=0.61, part=0.5) is Reason.SHARE
    assert reason(expected_s=0.2, base_s=0.2, part=0.1) is None, "an empty line is for everybody"


def test_room_that_was_promised_is_for_those_who_return() -> None:
    assert reason(expected_s=0.8, headroom_s=0.3) is Reason.RESERVED
    assert reason(expected_s=0.27, headroom_s=9.0) is None, "never all of it"
    assert reason(expected_s=0.8, headroom_s=0.3, is_returning=True) is None
    assert reason(expected_s=1.2, headroom_s=0.3, is_returning=True) is Reason.OBJECTIVE


def test_others_are_not_made_late_but_by_those_with_a_right_to_it() -> None:
    assert reason(makes_others_late=True) is Reason.PROMISED
    assert reason(makes_others_late=True, is_returning=True) is None
    assert reason(makes_others_late=True, has_less_than_share=True) is None
    assert reason(yields=True) is Reason.YIELDED
    assert reason(yields=True, is_returning=True) is None
    assert reason(yields=True, expected_s=1.01) is Reason.OBJECTIVE, "its own reason first"


def test_who_finds_nobody_ahead_can_make_others_late() -> None:
    answer = decide(facts(yields=True, expected_s=0.2, base_s=0.2), 1.0)
    assert isinstance(answer, Refused)
    assert answer.room_in_s == 0.0


def test_what_is_too_long_for_any_engine_is_let_in_when_little_waits() -> None:
    assert reason(expected_s=5.2, base_s=5.1, alone_s=5.0) is None
    assert reason(expected_s=5.3, base_s=5.1, alone_s=5.0) is Reason.OBJECTIVE


def test_how_long_until_there_is_room() -> None:
    answer = decide(facts(expected_s=1.7), 1.0)
    assert isinstance(answer, Refused)
    assert answer.room_in_s == pytest.approx(0.7)


def test_the_header_has_milliseconds() -> None:
    assert Estimate(0.1234, 0.5, 1.0).header() == '{"ttft_ms":123.4,"p90_ms":500.0,"limit_ms":1000.0}'


times = st.floats(0, 20)


@given(times, times, times, times, st.floats(0, 2), st.floats(0, 1), times, st.floats(0.01, 10))
def test_less_ahead_never_turns_a_welcome_into_a_refusal(
    age_s: float,
    expected_s: float,
    base_s: float,
    alone_s: float,
    spread: float,
    part: float,
    headroom_s: float,
    limit_s: float,
) -> None:
    base_s, alone_s = min(base_s, expected_s), min(alone_s, base_s, expected_s)
    one = facts(
        age_s=age_s,
        expected_s=expected_s,
        base_s=base_s,
        alone_s=alone_s,
        spread=spread,
        part=part,
        headroom_s=headroom_s,
    )
    answer = decide(one, limit_s)
    if isinstance(answer, Refused):
        assert answer.room_in_s > 0 or answer.reason is Reason.PROMISED
    sooner = facts(
        age_s=age_s,
        expected_s=(expected_s + base_s) / 2,
        base_s=base_s,
        alone_s=alone_s,
        spread=spread,
        part=part,
        headroom_s=headroom_s,
    )
    if isinstance(answer, Admitted):
        assert isinstance(decide(sooner, limit_s), Admitted)
