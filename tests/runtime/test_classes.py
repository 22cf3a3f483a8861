"""Classes and routes of requests: what they resolve to, and what is said of a wrong name."""

from typing import Any

import pytest

from firsttoken_api import errors
from firsttoken_api.hot_settings import (
    ClassSettings,
    EffectiveFlag,
    HotSettings,
    Objective,
    RouteSettings,
)
from firsttoken_runtime.server.classes import Classes, Resolved


def settings(*, limits_length: bool = True, **changes: Any) -> HotSettings:
    given: dict[str, Any] = {
        "generation": 1,
        "flags": (EffectiveFlag(name="length-control", enabled=limits_length),),
        "objective": Objective(ttft_p95_s=0.5),
        "classes": (
            ClassSettings(name="interactive", priority=10, ttft_p99_s=1.0, max_tokens=256),
            ClassSettings(name="batch", priority=0, ttft_p99_s=8.0),
        ),
        "default_class": "batch",
        "routes": (
            RouteSettings(name="intent", request_class="interactive", max_tokens=64),
            RouteSettings(name="plain"),
        ),
    } | changes
    return HotSettings(**given)


@pytest.mark.parametrize(
    ("class_name", "route", "expected"),
    [
        (None, None, Resolved("batch", None, 8.0)),
        ("interactive", None, Resolved("interactive", 256, 1.0)),
        (None, "intent", Resolved("interactive", 64, 1.0)),
        ("batch", "intent", Resolved("batch", 64, 8.0)),
        (None, "plain", Resolved("batch", None, 8.0)),
    ],
)
def test_a_request_is_of_the_class_it_names_or_of_its_routes(
    class_name: str | None, route: str | None, expected: Resolved
) -> None:
    assert Classes(settings()).resolve(class_name, route) == expected


def test_without_a_default_the_first_class_is_meant() -> None:
    assert Classes(settings(default_class="")).resolve(None, None).request_class == "interactive"


def test_lengths_are_limited_only_with_the_flag() -> None:
    assert Classes(settings(limits_length=False)).resolve(None, "intent").max_tokens is None


@pytest.mark.parametrize(
    ("class_name", "route", "param", "allowed"),
    [
        ("urgent", None, "X-Firsttoken-Class", "interactive, batch"),
        (None, "code", "X-Firsttoken-Route", "intent, plain"),
    ],
)
def test_a_wrong_name_is_refused_with_those_that_exist(
    class_name: str | None, route: str | None, param: str, allowed: str
) -> None:
    with pytest.raises(errors.BadRequestError, match=allowed) as refusal:
        Classes(settings()).resolve(class_name, route)
    assert refusal.value.param == param


def test_without_classes_naming_one_is_an_error() -> None:
    assert Classes().resolve(None, None) == Resolved()
    with pytest.raises(errors.BadRequestError, match="declares no classes"):
        Classes().resolve("interactive", None)


def test_a_route_may_stand_behind_the_models_name() -> None:
    classes = Classes(settings())
    assert classes.split_model("chat:intent", "chat") == ("chat", "intent")
    assert classes.split_model("chat", "chat") == ("chat", None)
    assert classes.split_model("other:intent", "chat") == ("other:intent", None)
    assert classes.split_model(None, "chat") == (None, None)
    with pytest.raises(errors.BadRequestError, match="intent, plain") as refusal:
        classes.split_model("chat:code", "chat")
    assert refusal.value.param == "model"
