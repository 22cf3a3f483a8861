from builders import objectives as builders
from firsttoken_sidecar import objectives
from firsttoken_sidecar.objectives import ClassObjective


def test_without_classes_there_is_one_without_a_name() -> None:
    made = objectives.of(builders.settings(0.4, 60.0, tpot_s=0.05))
    assert made.by_class == {"": ClassObjective("", 0.4, 0.05)}
    assert (made.default.name, made.window_s, made.tpot_s) == ("", 60.0, 0.05)


def test_the_default_class_is_held_to_the_service_and_others_to_their_own() -> None:
    declared = {"interactive": 1.0, "batch": 8.0}
    made = objectives.of(builders.settings(0.4, classes=declared))
    assert made.by_class == {
        "interactive": ClassObjective("interactive", 0.4, 0.05),
        "batch": ClassObjective("batch", 8.0, 0.01),
    }
    assert made.limits_s == [0.4, 8.0]
    named = objectives.of(builders.settings(0.4, classes=declared, default_class="batch"))
    assert [each.limit_s for each in named.by_class.values()] == [1.0, 0.4]


def test_before_the_first_document_there_is_no_limit() -> None:
    assert objectives.NONE_YET.default.limit_s is None
    assert objectives.NONE_YET.limits_s == []
