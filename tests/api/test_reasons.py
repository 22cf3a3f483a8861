import re

from firsttoken_api.reasons import CONDITIONS, REASONS, ConditionType, Reason


def test_every_condition_and_reason_is_explained() -> None:
    assert CONDITIONS.keys() == set(ConditionType)
    assert REASONS.keys() == set(Reason)


def test_spelling_is_what_kubernetes_accepts() -> None:
    for value in [*ConditionType, *Reason]:
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", value)
        assert len(value) <= 64


def test_explanations_are_sentences() -> None:
    for text in [*CONDITIONS.values(), *(each.meaning for each in REASONS.values())]:
        assert text.endswith(".")
        assert text[0].isupper() or text.startswith(("spec.", "/scale"))
