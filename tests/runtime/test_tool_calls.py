"""Calls of tools in a growing text: every way to cut the text gives the same answer, and nothing is lost."""

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firsttoken_runtime.server.parts import Arguments, CallStart, Content, Part
from firsttoken_runtime.server.tool_calls import Format, ToolCallParser, format_of

NAMES = frozenset({"f", "weather"})
HERMES, LLAMA, MISTRAL = Format.HERMES, Format.LLAMA, Format.MISTRAL
F = '{"name": "f", "arguments": {"x": 1}}'
P = '{"name": "f", "parameters": {"x": 1}}'


def _parts(tool_format: Format, pieces: list[str]) -> list[Part]:
    parser = ToolCallParser(tool_format, NAMES)
    return [part for piece in pieces for part in parser.feed(piece)] + parser.flush()


def _read(tool_format: Format, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """The content, and each call's name and arguments."""
    content, calls = "", []
    for part in _parts(tool_format, pieces):
        match part:
            case Content(text):
                content += text
            case CallStart(index, name):
                assert index == len(calls)
                calls.append((name, ""))
            case Arguments(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return content, calls


@pytest.mark.parametrize(
    ("tool_format", "text", "content", "calls"),
    [
        (HERMES, "plain < text <tool", "plain < text <tool", []),
        (HERMES, f"<tool_call>\n{F}\n</tool_call>", "", [("f", '{"x": 1}')]),
        (
            HERMES,
            f"a <tool_call>{F}</tool_call>\n<tool_call>{F}</tool_call> b",
            "a  b",
            [("f", '{"x": 1}')] * 2,
        ),
        (HERMES, f"<tool_call>{F}", "", [("f", '{"x": 1}')]),
        (HERMES, f"<tool_call>{F} more", " more", [("f", '{"x": 1}')]),
        (
            HERMES,
            '<tool_call>{"arguments": {"s": "}</tool_call>\\""}, "name": "f"}</tool_call>',
            "",
            [("f", '{"s": "}</tool_call>\\""}')],
        ),
        (
            HERMES,
            '<tool_call>{"id": 7, "name": "f", "arguments": "{\\"x\\": \\"é\\u00e9\\"}"}</tool_call>',
            "",
            [("f", '{"x": "éé"}')],
        ),
        (HERMES, '<tool_call>{"name": "f"}</tool_call>', '<tool_call>{"name": "f"}</tool_call>', []),
        (HERMES, '<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', []),
        (HERMES, "<tool_call>call me</tool_call>", "<tool_call>call me</tool_call>", []),
        (HERMES, f"<tool_call><tool_call>{F}</tool_call>", "<tool_call>", [("f", '{"x": 1}')]),
        (HERMES, '<tool_call>{"name": 3, "arguments": {}}', '<tool_call>{"name": 3, "arguments": {}}', []),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": [1]}',
            '<tool_call>{"name": "f", "arguments": [1]}',
            [],
        ),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"x": 1', "", [("f", '{"x": 1')]),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": {"x": 1]} no</tool_call>t',
            "t",
            [("f", '{"x": 1]} no')],
        ),
        (LLAMA, P, "", [("f", '{"x": 1}')]),
        (LLAMA, f"<|python_tag|>{P}; {P}", "", [("f", '{"x": 1}')] * 2),
        (LLAMA, f" {P};\n{P}\n", "", [("f", '{"x": 1}')] * 2),
        (LLAMA, f"{P} and", " and", [("f", '{"x": 1}')]),
        (LLAMA, f"I call {P}", f"I call {P}", []),
        (LLAMA, '{"name": "John", "age": 3}', '{"name": "John", "age": 3}', []),
        (LLAMA, '{"name": "John", "parameters": {}}', '{"name": "John", "parameters": {}}', []),
        (LLAMA, '<|python_tag|>{"name": "g", "parameters": {}}', "", [("g", "{}")]),
        (LLAMA, "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
        (LLAMA, "<|pyth", "<|pyth", []),
        (LLAMA, "", "", []),
        (MISTRAL, f"[TOOL_CALLS][{F}, {F}]", "", [("f", '{"x": 1}')] * 2),
        (MISTRAL, f"[TOOL_CALLS] [{F}] then", " then", [("f", '{"x": 1}')]),
        (MISTRAL, "see [TOOL] [TOOL_CALLS][1]", "see [TOOL] [TOOL_CALLS][1]", []),
        (MISTRAL, f"[TOOL_CALLS][{F}, 5]", ", 5]", [("f", '{"x": 1}')]),
    ],
)
def test_whole_and_by_characters(tool_format, text, content, calls):
    assert _read(tool_format, [text]) == (content, calls)
    assert _read(tool_format, list(text)) == (content, calls)


_MARKERS = ["<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]"]
_SIGNS = ["[", "]", ",", ";", " ", "\n", "<", "a", "{", "}", '"', "\\", "null", "é", ": 1"]
_CALLS = [F, P, F[:-3], '{"name": "f", ', '"arguments": ']
_TOKENS = st.sampled_from(_MARKERS + _SIGNS + _CALLS)


@given(
    st.sampled_from(Format), st.lists(_TOKENS, max_size=12).map("".join), st.randoms(use_true_random=False)
)
@example(HERMES, f"<tool_call>{F}</tool_call> x", random.Random(1))
def test_the_cuts_do_not_matter(tool_format, text, rng):
    whole = _read(tool_format, [text])
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _read(tool_format, pieces) == whole
    content, calls = whole
    if not calls:
        assert content == text, "nothing is lost"


def test_text_goes_on_as_soon_as_it_cannot_become_a_marker():
    parser = ToolCallParser(HERMES)
    assert parser.feed("1 <") == [Content("1 ")]
    assert parser.feed("tool_") == []
    assert parser.feed("box>") == [Content("<tool_box>")]
    assert not parser.has_called_tools


def test_arguments_stream_as_they_are_written():
    parser = ToolCallParser(HERMES)
    assert parser.feed('<tool_call>{"name": "f", "argu') == []
    start, first = parser.feed('ments": {"ci')
    assert isinstance(start, CallStart)
    assert start.name == "f"
    assert start.call_id.startswith("call_")
    assert first == Arguments(0, '{"ci')
    assert parser.feed('ty": "Pa') == [Arguments(0, 'ty": "Pa')]
    assert parser.has_called_tools


def test_long_arguments_take_linear_time():
    text = f'<tool_call>{{"name": "f", "arguments": {json.dumps({"x": "y" * 60_000})}}}</tool_call>'
    _, [(_, arguments)] = _read(HERMES, [text[at : at + 4] for at in range(0, len(text), 4)])
    assert len(json.loads(arguments)["x"]) == 60_000


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", MISTRAL),
        ("<|python_tag|>", LLAMA),
        ('{"name": function name, "parameters": dictionary of argument name and its value}', LLAMA),
        ("<tool_call><function=", None),
        ("[TOOL_CALLS]f[ARGS]", None),
        ("plain", None),
    ],
)
def test_the_format_comes_from_the_template(template, expected):
    assert format_of(template) is expected
