"""The decision per flag, and the generation of the document."""

from typing import Any

import pytest

from builders import observed as build
from firsttoken_api import flags as table
from firsttoken_api.flags import FlagMode
from firsttoken_api.hot_settings import ClassSettings, HotSettings, RouteSettings
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
    assert all(each.reason is Reason.DEFAULT for each in decisions.values())
    off = {name for name, each in decisions.items() if not each.enabled}
    assert off == {name for name in table.BUILT if not table.BY_NAME[name].on_by_default}
    assert {"prefix-cache", "priority"}.isdisjoint(off)
    assert {"kv-int8", "kv-fp8", "kv-tiering", "prefix-affinity", "length-control"} <= off
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


def test_a_lossy_flag_is_on_only_when_forced() -> None:
    assert not decide()["length-control"].enabled
    gated = decide(asked("length-control", FlagMode.GATED))["length-control"]
    assert (gated.enabled, gated.reason) == (False, Reason.NOT_JUDGED)
    assert "Forced" in gated.message
    assert decide(asked("length-control", FlagMode.FORCED))["length-control"].enabled


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


def test_needs_fall_one_after_the_other() -> None:
    decisions = decide(
        asked("paged-kv", FlagMode.DISABLED),
        asked("prefix-affinity", FlagMode.GATED),
        off=frozenset({"chunked-prefill"}),
    )
    assert decisions["prefix-cache"].reason is Reason.NEEDS_FLAG
    forced = decide(asked("kv-tiering", FlagMode.FORCED), asked("prefix-cache", FlagMode.GATED))["kv-tiering"]
    assert (forced.enabled, forced.reason) == (False, Reason.NEEDS_FLAG)
    assert "prefix-cache" in forced.message


def test_built_hot_parameters_travel_with_their_defaults() -> None:
    assert dict(decide()["chunked-prefill"].params) == {"chunkTokens": "512"}
    decision = decide(asked("chunked-prefill", FlagMode.FORCED, chunkTokens="256"))["chunked-prefill"]
    assert dict(decision.params) == {"chunkTokens": "256"}


def document_of(*asked: Optimization, off: frozenset[str] = frozenset(), **spec: Any) -> HotSettings:
    return flags.document(flags.decide(asked, off), build.service(**spec).spec, 7)


def test_the_document_has_the_objective_in_seconds_and_a_hash_of_its_content() -> None:
    slo = {"ttftP95": "250ms", "window": "1m", "tpotP95": "40ms"}
    document = document_of(slo=slo)
    objective = document.objective
    assert (objective.ttft_p95_s, objective.window_s, objective.tpot_p95_s) == (0.25, 60, 0.04)
    assert (document.generation, document.hash) == (7, document.content_hash())
    spec = build.service(slo=slo).spec
    assert document.hash == flags.document(flags.decide((), frozenset()), spec, 8).hash


KNOWN = ("paged-kv", "continuous-batching", "chunked-prefill")


def test_flags_of_later_versions_are_listed_only_when_something_was_asked() -> None:
    """An engine of the first version refuses a document with a name that it does not know."""
    first = list(KNOWN)
    assert [each.name for each in document_of().flags] == first
    forced = document_of(asked("length-control", FlagMode.FORCED))
    assert [each.name for each in forced.flags] == [*first, "length-control"]
    off = document_of(off=frozenset({"priority"}))
    assert {each.name: each.enabled for each in off.flags}["priority"] is False
    needs = document_of(asked("continuous-batching", FlagMode.DISABLED))
    assert {each.name: each.enabled for each in needs.flags}["priority"] is False


def test_an_operator_upgrade_changes_no_byte_of_what_pods_read() -> None:
    """As it was written before there were flags of the cache."""
    assert document_of(slo={"ttftP95": "500ms"}).to_json() == (
        '{"schema_version":1,"generation":7,"flags":[{"name":"paged-kv","enabled":true,"params":{}},'
        '{"name":"continuous-batching","enabled":true,"params":{}},'
        '{"name":"chunked-prefill","enabled":true,"params":{"chunkTokens":"512"}}],'
        '"objective":{"ttft_p95_s":0.5,"window_s":300.0},"hash":"fffb20f9026ece9c"}'
    )


def test_flags_of_the_cache_travel_with_their_hot_parameters_only() -> None:
    document = document_of(
        asked("prefix-cache", FlagMode.FORCED, maxFraction="0.25"),
        asked("prefix-affinity", FlagMode.FORCED),
        asked("kv-tiering", FlagMode.FORCED, hostMemory="1Gi", claimName="warm"),
        asked("kv-int8", FlagMode.FORCED, fullPrecisionLayers="0"),
    )
    params = {each.name: each.params for each in document.flags if each.name not in KNOWN}
    assert params == {
        "prefix-cache": {"maxFraction": "0.25", "protectedFraction": "0.80"},
        "prefix-affinity": {"maxWait": "20ms"},
        "kv-tiering": {},
        "kv-int8": {"fullPrecisionLayers": "0"},
    }


CLASSES: list[dict[str, Any]] = [
    {"name": "interactive", "ttftP99": "1500ms", "priority": 10, "maxTokens": 64},
    {"name": "batch", "ttftP99": "8s"},
]


def test_classes_and_routes_travel_with_the_flags() -> None:
    routes = [{"name": "intent", "class": "interactive", "maxTokens": 8}, {"name": "free"}]
    document = document_of(slo={"classes": CLASSES, "defaultClass": "batch"}, routes=routes)
    assert document.classes == (
        ClassSettings(name="interactive", priority=10, ttft_p99_s=1.5, max_tokens=64),
        ClassSettings(name="batch", ttft_p99_s=8),
    )
    assert document.default_class == "batch"
    assert document.routes == (
        RouteSettings(name="intent", request_class="interactive", max_tokens=8),
        RouteSettings(name="free"),
    )


def test_the_first_class_is_the_default_one() -> None:
    assert document_of(slo={"classes": CLASSES}).default_class == "interactive"
    assert document_of().default_class == ""


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, {}),
        ({"blockSize": "16", "maxBlocks": "auto"}, {}),
        ({"blockSize": "016"}, {}),
        ({"blockSize": "032", "maxBlocks": "500"}, {"paged-kv": {"blockSize": "32", "maxBlocks": "500"}}),
    ],
)
@pytest.mark.parametrize("mode", FlagMode)
def test_cold_parameters_are_those_that_differ_whatever_the_mode(
    mode: FlagMode, params: dict[str, str], expected: dict[str, dict[str, str]]
) -> None:
    one = asked("paged-kv", mode, **params)
    assert flags.cold_parameters([one, asked("chunked-prefill", mode, chunkTokens="64")]) == expected
    assert decide(one)["paged-kv"].params == (), "not in the hot document"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"hostMemory": "auto", "claimName": ""}, {}),
        ({"hostMemory": "4096Mi"}, {"kv-tiering": {"hostMemory": "4Gi"}}),
        ({"claimName": "warm"}, {"kv-tiering": {"claimName": "warm"}}),
    ],
)
def test_another_spelling_of_a_cold_parameter_is_the_same(
    params: dict[str, str], expected: dict[str, dict[str, str]]
) -> None:
    assert flags.cold_parameters([asked("kv-tiering", FlagMode.DISABLED, **params)]) == expected


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
