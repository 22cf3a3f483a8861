"""How long an answer is expected to get, from what answers of its class did with what they might."""

import pytest

from firsttoken_sidecar import backlog, lengths


def test_at_first_an_answer_is_expected_to_use_all_it_may() -> None:
    one = lengths.AnswerLengths()
    assert one.expected("chat", 200) == 200
    assert one.expected("chat", None) == backlog.UNKNOWN_OUTPUT_TOKENS


def test_the_share_that_is_used_is_learned_by_class() -> None:
    one = lengths.AnswerLengths()
    for _ in range(200):
        one.note("chat", 1000, 100)
    assert one.expected("chat", 500) == pytest.approx(50, rel=0.02)
    assert one.expected("batch", 500) == 500
    assert one.as_scheduled("chat", 500) == 500, "the engine's order does not know"


def test_answers_without_a_limit_have_the_median_of_their_class_or_of_all() -> None:
    one = lengths.AnswerLengths()
    one.medians = {"chat": 30.0, "": 70.0}
    assert (one.expected("chat", None), one.as_scheduled("chat", None)) == (30.0, 30.0)
    assert one.expected("other", None) == 70.0
    one.note("chat", None, 5)
    assert one.expected("chat", 10) == 10


def test_classes_are_bounded() -> None:
    one = lengths.AnswerLengths()
    for number in range(1000):
        for _ in range(60):
            one.note(str(number), 100, 10)
    assert one.expected("0", 100) < 20
    assert one.expected("999", 100) == 100
