import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import passages


def letters(text: str) -> list[int]:
    return list(text.encode())


def test_passages_are_of_one_length_and_of_one_text_each():
    found = passages.cut(["abcdefg", "x", "hijklm"], letters, 3, 4)
    assert [bytes(one) for one in found] == [b"abc", b"def", b"hij", b"klm"]


def test_too_little_text_is_said_with_numbers():
    with pytest.raises(UserError, match="2 passages of 3 tokens, 5 are wanted"):
        passages.cut(["abcdefg"], letters, 3, 5)


def test_the_built_in_text_is_enough_for_the_defaults_and_always_the_same():
    texts = passages.texts(None)
    assert texts == passages.texts(None)
    # Four bytes a token is what a tokenizer with a usual vocabulary makes of English.
    assert len(passages.cut(texts, lambda text: letters(text)[::4], 256, 200)) == 200


def test_a_file_of_lines_or_of_json(tmp_path):
    plain, json_lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("one\n\ntwo\n")
    json_lines.write_text('{"text": "one"}\n{"text": "two"}\n')
    assert passages.texts(plain) == passages.texts(json_lines) == ["one", "two"]
    json_lines.write_text('{"text": "one"}\n{"key": 1}\n')
    with pytest.raises(UserError, match="line 2"):
        passages.texts(json_lines)
    with pytest.raises(UserError, match=r"--passages: .*no\.txt"):
        passages.texts(tmp_path / "no.txt")
