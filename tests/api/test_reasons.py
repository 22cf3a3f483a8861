import ast
import re
from pathlib import Path

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


def _words_of_the_processes() -> set[str]:
    """Every attribute and string constant in the operator's and the runtime's code."""
    root = Path(__file__).resolve().parents[2]
    words = set()
    for folder in ("operator/firsttoken_operator", "runtime/firsttoken_runtime"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    words.add(node.attr)
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.add(node.value)
    return words


def test_every_condition_and_reason_is_given_by_somebody() -> None:
    words = _words_of_the_processes()
    unused = {
        each for each in [*ConditionType, *Reason] if each.name not in words and each.value not in words
    }
    assert unused == set(), "a reason that nobody gives explains nothing: remove its row"
