"""Where an answer ends: text and token count are cut at the same token."""

from firsttoken_runtime import core
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.detokenizer import Detokenizer
from runtime.byte_text import text_model
from runtime.fake_engine import END

TEXT = text_model()


def _tokens(text: str, last_reason: str = "", last_id: int | None = None) -> list[core.Token]:
    ids = TEXT.encode(text, add_special_tokens=False) + ([] if last_id is None else [last_id])
    return [
        core.Token(sequence_id=1, token_id=one, finish_reason=last_reason if index == len(ids) - 1 else "")
        for index, one in enumerate(ids)
    ]


def _answer(**kwargs: object) -> Answer:
    return Answer(Detokenizer(TEXT.tokenizer), **kwargs)


def test_the_stop_token_has_no_text_but_counts():
    answer = _answer()
    assert answer.take(_tokens("ab", "stop", END)) == "ab"
    assert (answer.finish_reason, answer.stop_reason, answer.completion_tokens) == ("stop", None, 3)


def test_a_clients_stop_id_is_named():
    answer = _answer(stop_token_ids=(66,))
    answer.take(_tokens("a", "stop", 66))
    assert answer.stop_reason == 66


def test_the_last_token_of_a_full_answer_has_text():
    answer = _answer()
    assert answer.take(_tokens("abc", "length")) == "abc"
    assert answer.finish_reason == "length"


def test_tokens_after_a_stop_string_are_not_counted():
    answer = _answer(stops=("cd",))
    assert answer.take(_tokens("abcdef")) == "ab"
    assert (answer.finish_reason, answer.stop_reason, answer.completion_tokens) == ("stop", "cd", 4)


def test_a_stop_string_at_the_very_end_wins_over_length():
    answer = _answer(stops=("bc",))
    assert answer.take(_tokens("abc", "length")) == "a"
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "bc")


def test_what_looked_like_a_stop_is_shown_at_the_end():
    answer = _answer(stops=("cd",))
    assert answer.take(_tokens("abc")) == "ab"
    assert answer.take(_tokens("", "stop", END)) == "c"


def test_no_stop_string_before_min_tokens():
    answer = _answer(stops=("a",), min_tokens=2)
    assert answer.take(_tokens("aabab")) == "aab"
    assert answer.completion_tokens == 4
    answer = _answer(stops=("a",), min_tokens=2)
    assert answer.take(_tokens("ba", "length")) == "ba"
    assert answer.finish_reason == "length"


def test_an_incomplete_character_at_the_end_is_one_replacement():
    euro = TEXT.encode("€", add_special_tokens=False)
    answer = _answer()
    shown = answer.take(
        [
            core.Token(sequence_id=1, token_id=euro[0]),
            core.Token(sequence_id=1, token_id=euro[1], finish_reason="length"),
        ]
    )
    assert shown == "\ufffd"
