"""The decision per flag, and the generation of the document."""

import pytest

from builders import observed as build
from firsttoken_api import flags as table
from firsttoken_api.flags import FlagMode
from firsttoken_api.optimizations import Optimization
from firsttoken_api.reasons import Reason
from firsttoken_operator import flags
from firsttoken_operator.flags import Known


def decide(*asked: Optimization, off: frozenset[str] = frozenset()) -> dict[str, flags.Decision]:
    return {each.name: each for each in flags.decide(asked, off)}


def asked(name: str, mode: FlagMode, **params: str) -> Optimization:
    return Optimization(name=name, mode=mode, params=params)


def test_defaults_are_in_force_and_only_built_flags_are_decided() -> None:
    decisions = decide()
    assert tuple(decisions) == table.BUILT
    assert all(each.enabled and each.reason is Reason.DEFAULT for each in decisions.values())
    assert {each.requested for each in decisions.values()} == {flags.DEFAULT}


@pytest.mark.parametrize(
    ("mode", "enabled", "reason"),
    [
        (FlagMode.DISABLED, False, Reason.USER_DISABLED),
        (FlagMode.GATED, False, Reason.NOT_JUDGED),
        (FlagMode.FORCED, True, Reason.FORCED),
    ],
)
def test_each_mode_has_its_reason(mode: FlagMode, enabled: bool, reason: Reason) -> None:
    decision = decide(asked("chunked-prefill", mode))["chunked-prefill"]
    assert (decision.enabled, decision.reason, decision.requested) == (enabled, reason, mode.value)


def test_a_flag_whose_need_is_off_is_off_too_and_names_it() -> None:
    decision = decide(asked("continuous-batching", FlagMode.DISABLED))["chunked-prefill"]
    assert not decision.enabled
    assert decision.reason is Reason.NEEDS_FLAG
    assert "continuous-batching" in decision.message


def test_the_fleet_switch_wins_over_forced() -> None:
    decisions = decide(
        asked("continuous-batching", FlagMode.FORCED),
        asked("chunked-prefill", FlagMode.FORCED),
        off=frozenset({"continuous-batching"}),
    )
    assert decisions["continuous-batching"].reason is Reason.FORCED_OFF_BY_FLEET
    assert decisions["chunked-prefill"].reason is Reason.NEEDS_FLAG
    assert decisions["paged-kv"].enabled


def test_built_hot_parameters_travel_with_their_defaults() -> None:
    assert dict(decide()["chunked-prefill"].params) == {"chunkTokens": "512"}
    decision = decide(asked("chunked-prefill", FlagMode.FORCED, chunkTokens="256"))["chunked-prefill"]
    assert dict(decision.params) == {"chunkTokens": "256"}


def test_the_document_lists_every_built_flag_and_the_objective_in_seconds() -> None:
    slo = build.service(slo={"ttftP95": "250ms", "window": "1m"}).spec.slo
    document = flags.document(flags.decide((), frozenset()), slo, 7)
    assert [each.name for each in document.flags] == list(table.BUILT)
    assert (document.generation, document.objective.ttft_p95_s, document.objective.window_s) == (7, 0.25, 60)
    assert document.hash == document.content_hash()
    assert document.hash == flags.document(flags.decide((), frozenset()), slo, 8).hash


@pytest.mark.parametrize(
    ("documents", "at_pods", "before", "expected"),
    [
        ([], [], 0, 1),  # a new service
        ([], [], 4, 4),  # nothing could have read generation 4: it may still be written
        ([Known(4, "same")], [4], 4, 4),
        ([Known(4, "other")], [4], 4, 5),
        ([Known(4, "")], [], 4, 5),  # unreadable after a hand edit
        ([], [4], 4, 5),  # deleted by hand, but pods run 4
        ([Known(1, "same")], [4], 4, 5),  # written anew with a number that pods have left behind
        ([Known(4, "same"), Known(3, "other")], [3], 4, 4),  # the second revision's follows
        ([Known(4, "other")], [4], 5, 5),  # promised and not written yet: not promised anew
    ],
)
def test_generations_only_grow(
    documents: list[Known], at_pods: list[int], before: int, expected: int
) -> None:
    assert flags.next_generation("same", documents, at_pods, before) == expected
