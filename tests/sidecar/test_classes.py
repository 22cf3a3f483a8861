import pytest

from firsttoken_api import hot_settings, names
from firsttoken_sidecar import classes


def settings(*class_names: str, default_class: str = "", **routes: str | None) -> hot_settings.HotSettings:
    """Classes from the most urgent to the least."""
    count = len(class_names)
    return hot_settings.HotSettings(
        generation=1,
        flags=(),
        objective=hot_settings.Objective(ttft_p95_s=0.5),
        classes=tuple(
            hot_settings.ClassSettings(name=name, priority=10 * (count - i), ttft_p99_s=0.5 + i)
            for i, name in enumerate(class_names)
        ),
        default_class=default_class,
        routes=tuple(hot_settings.RouteSettings(name=name, request_class=of) for name, of in routes.items()),
    )


THREE = settings("live", "normal", "batch", default_class="normal", night="batch", plain=None)


@pytest.mark.parametrize(
    ("headers", "model", "expected"),
    [
        ({}, "", "normal"),
        ({}, "chat", "normal"),
        ({names.HEADER_CLASS: "live"}, "chat:night", "live"),
        ({names.HEADER_ROUTE: "night"}, "chat", "batch"),
        ({}, "chat:night", "batch"),
        ({names.HEADER_ROUTE: "plain"}, "chat:night", "normal"),
        ({}, "chat:unknown", "normal"),
        ({names.HEADER_CLASS: ""}, "", "normal"),
    ],
)
def test_the_class_of_a_request(headers: dict[str, str], model: str, expected: str) -> None:
    found = classes.resolve(headers, model, THREE)
    assert found is not None
    assert found.name == expected


def test_an_unknown_class_stays_for_the_engine_to_refuse() -> None:
    assert classes.asked({names.HEADER_CLASS: "none such"}, "", THREE) == "none such"
    assert classes.resolve({names.HEADER_CLASS: "none such"}, "", THREE) is None
    assert classes.lowered("none such", "batch", THREE) == "none such"


def test_where_none_are_declared_there_is_none() -> None:
    assert classes.resolve({}, "", settings()) is None
    assert classes.asked({}, "chat:x", settings()) == ""
    assert classes.lowered("", "live", settings()) == ""


def test_the_first_is_the_default_where_none_is_named() -> None:
    found = classes.default_of(settings("a", "b"))
    assert found is not None
    assert found.name == "a"


@pytest.mark.parametrize(
    ("name", "ceiling", "expected"),
    [
        ("live", "", "live"),
        ("live", "live", "live"),
        ("live", "normal", "normal"),
        ("normal", "live", "normal"),
        ("batch", "normal", "batch"),
        ("live", "renamed", "batch"),
        ("batch", "renamed", "batch"),
    ],
)
def test_a_ceiling_only_lowers(name: str, ceiling: str, expected: str) -> None:
    assert classes.lowered(name, ceiling, THREE) == expected
