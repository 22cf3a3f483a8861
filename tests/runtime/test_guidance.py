"""The grammar library behind our limits: what it cannot honour is an error, never a warning."""

import json

import llguidance
import pytest
import tokenizers

from firsttoken_runtime import guidance
from runtime.byte_text import text_model

VOCABULARY = 300


def _tokenizer(vocabulary_size: int = VOCABULARY, eos: tuple[int, ...] = (0, 5)) -> llguidance.LLTokenizer:
    document = guidance.tokenizer_json(text_model().tokenizer)
    return guidance.load_tokenizer(document, vocabulary_size, eos)


def _schema(schema: object) -> str:
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))


def test_padding_and_truncation_are_not_carried_over():
    tokenizer = text_model().tokenizer
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=7)
    document = json.loads(guidance.tokenizer_json(tokenizer))
    assert document["truncation"] is None
    assert document["padding"] is None
    assert tokenizer.truncation is not None, "the server's own tokenizer is left as it is"


def test_a_model_without_an_end_cannot_follow_a_grammar():
    with pytest.raises(guidance.GrammarError, match="names no token that ends an answer"):
        _tokenizer(eos=(VOCABULARY, -1))


def test_a_tokenizer_larger_than_the_model_is_taken_whole():
    assert _tokenizer(7, eos=(3,)).vocab_size == text_model().tokenizer.get_vocab_size()


def test_a_tokenizer_the_library_does_not_know():
    document = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).to_str()
    with pytest.raises(guidance.GrammarError, match="cannot be used with this model's tokenizer"):
        guidance.load_tokenizer(document, 1, (0,))


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        (_schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (_schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}), "uniqueItems"),
        (_schema({"not": {}}), "not"),
        (_schema({"type": "strng"}), "strng"),
        (_schema(False), "Unsatisfiable"),
        (_schema({"$ref": "#"}), ""),
        (_schema({"$ref": "https://schemas.invalid/x"}), "schemas.invalid"),
        (_schema({"type": "string", "pattern": "^(?!a)b$"}), "look-around"),
        (_schema({"enum": [f"value {i}" for i in range(9000)]}), "64 KiB"),
        (llguidance.LLMatcher.grammar_from_regex("(a"), "regex"),
        ("start: nowhere", "nowhere"),
        ("start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        ("", ""),
        ("{}", ""),
    ],
)
def test_what_cannot_be_honoured_or_is_too_large_is_an_error_on_one_line(grammar, says):
    with pytest.raises(guidance.GrammarError) as caught:
        guidance.compile_grammar(_tokenizer(), grammar)
    assert says in str(caught.value)
    assert len(str(caught.value)) <= 301
    assert "\n" not in str(caught.value)


def test_a_grammar_that_holds():
    matcher = guidance.compile_grammar(_tokenizer(), _schema({"type": "integer"}))
    assert not matcher.is_error()
