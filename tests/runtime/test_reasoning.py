"""Thoughts before an answer: split wherever the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.server.parts import Content, Reasoning
from firsttoken_runtime.server.reasoning import ReasoningParser, is_used_by, starts_inside


def _read(pieces: list[str], inside: bool) -> tuple[str, str]:
    parser = ReasoningParser(starts_inside=inside)
    parts = [part for piece in pieces for part in parser.feed(piece)] + parser.flush()
    assert all(isinstance(part, Content | Reasoning) for part in parts)
    thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
    return thought, "".join(part.text for part in parts if isinstance(part, Content))


@pytest.mark.parametrize(
    ("text", "inside", "thought", "content"),
    [
        ("hello <think>", False, "", "hello <think>"),
        ("<think>a</think>b", False, "a", "b"),
        ("\n<think>a < b</think>\n\nb</think>", False, "a < b", "\n\nb</think>"),
        ("a</think>b", True, "a", "b"),
        ("never ends </thi", True, "never ends </thi", ""),
        ("<thi", False, "", "<thi"),
        ("  ", False, "", "  "),
        ("", False, "", ""),
    ],
)
def test_whole_and_by_characters(text, inside, thought, content):
    assert _read([text], inside) == (thought, content)
    assert _read(list(text), inside) == (thought, content)


_TOKENS = st.sampled_from(["<think>", "</think>", "<", "/", "think>", " ", "\n", "a", "é"])


@given(st.lists(_TOKENS, max_size=9), st.booleans())
def test_the_cuts_do_not_matter(pieces, inside):
    assert _read(pieces, inside) == _read(["".join(pieces)], inside)


def test_text_is_held_only_while_it_can_become_a_marker():
    parser = ReasoningParser(starts_inside=False)
    assert parser.feed("<th") == []
    assert parser.feed("e") == [Content("<the")]


def test_where_it_is_used():
    assert is_used_by("{{ '<think>' }}")
    assert not is_used_by("plain")
    assert starts_inside("<|im_start|>assistant\n<think>\n")
    assert not starts_inside("<think>\n\n</think>\n\n")
