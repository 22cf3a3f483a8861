"""What an answer must look like: grammars that the library takes, and limits it does not have."""

import json

import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime import guidance
from firsttoken_runtime.server import structured
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.structured import ToolFormat, constraint, repetitions
from firsttoken_runtime.server.tool_calls import Format
from runtime.byte_text import text_model

TOKENIZER = text_model().tokenizer
LIBRARY = guidance.load_tokenizer(guidance.tokenizer_json(TOKENIZER), 300, (0,))
CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/c"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"c": {"enum": ["Paris"]}},
}
HERMES, LLAMA, MISTRAL = (ToolFormat(one) for one in Format)


def _chat(**changes: object) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "hi"}]} | changes
    return ChatRequest.model_validate_json(json.dumps(body))


def _tool(name: str, parameters: object = None, **changes: object) -> dict[str, object]:
    function = {"name": name} | ({} if parameters is None else {"parameters": parameters}) | changes
    return {"type": "function", "function": function}


def _schema(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def _follows(wanted: structured.Constraint, text: str) -> bool:
    """Whether `text` is a complete answer."""
    for _, part in wanted.parts:
        guidance.compile_grammar(LIBRARY, part)
    matcher = guidance.compile_grammar(LIBRARY, wanted.grammar)
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def test_free_text_has_no_grammar():
    assert constraint(_chat()) == structured.FREE
    assert constraint(_chat(response_format={"type": "text"})) == structured.FREE
    tools = [_tool("f", CITY)]
    assert constraint(_chat(tools=tools), HERMES) == structured.FREE
    assert constraint(_chat(tools=tools, tool_choice="none")) == structured.FREE


@pytest.mark.parametrize(
    "kind", [_chat, lambda **body: CompletionRequest.model_validate({"prompt": "x"} | body)]
)
def test_json(kind):
    wanted = constraint(kind(response_format={"type": "json_object"}))
    assert _follows(wanted, '{"a": [1, {"b": null}]}')
    assert not _follows(wanted, "[1]")
    assert [param for param, _ in wanted.parts] == ["response_format"]
    assert not _follows(wanted, '{"a":' + " " * 30 + "1}"), "space is bounded"
    assert _follows(wanted, '{\n    "a": 1\n}')


def test_a_schema():
    wanted = constraint(_chat(response_format=_schema(CITY)))
    assert _follows(wanted, '{"city": "Paris"}')
    assert not _follows(wanted, '{"city": "Rome"}')
    assert [param for param, _ in wanted.parts] == ["response_format.json_schema.schema"]


TWO = [_tool("f", CITY), _tool("g")]
F = '{"name": "f", "arguments": {"city": "Paris"}}'
G = '{"name": "g", "arguments": {}}'


@pytest.mark.parametrize(
    ("tool_format", "one", "two"),
    [
        (
            HERMES,
            f"<tool_call>\n{F}\n</tool_call>",
            f"<tool_call>\n{F}\n</tool_call>\n<tool_call>\n{G}\n</tool_call>",
        ),
        (LLAMA, F.replace("arguments", "parameters"), f"{F}; {G}".replace("arguments", "parameters")),
        (MISTRAL, f"[TOOL_CALLS][{F}]", f"[TOOL_CALLS][{F}, {G}]"),
    ],
)
def test_forced_calls(tool_format, one, two):
    required = constraint(_chat(tools=TWO, tool_choice="required"), tool_format)
    assert [param for param, _ in required.parts] == [f"tools[{i}].function.parameters" for i in (0, 1)]
    for text in (one, two):
        assert _follows(required, text)
        assert not _follows(required, "text " + text)
        assert not _follows(required, text.replace("Paris", "Rome"))
    assert not _follows(required, "text")
    single = constraint(_chat(tools=TWO, tool_choice="required", parallel_tool_calls=False), tool_format)
    assert _follows(single, one)
    assert not _follows(single, two)
    named = _chat(tools=TWO, tool_choice={"type": "function", "function": {"name": "g"}})
    assert not _follows(constraint(named, tool_format), one)
    assert _follows(
        constraint(named, tool_format), one.replace(' {"city": "Paris"}', " {}").replace('"f"', '"g"')
    )


@pytest.mark.parametrize(
    ("tool_format", "text"),
    [
        (HERMES, f"so\n<tool_call>\n{F}\n</tool_call> ok"),
        (LLAMA, F.replace("arguments", "parameters")),
        (MISTRAL, f"so [TOOL_CALLS][{F}]"),
    ],
)
def test_strict_tools_bind_calls_and_leave_text_free(tool_format, text):
    wanted = constraint(_chat(tools=[_tool("f", CITY, strict=True)]), tool_format)
    for free in ("", "any text\n< [TOOL", text):
        assert _follows(wanted, free)
    assert not _follows(wanted, text.replace("Paris", "Rome"))


def test_an_answer_in_a_format_or_a_call():
    wanted = constraint(_chat(tools=TWO, response_format=_schema(CITY)), HERMES)
    assert _follows(wanted, '{"city": "Paris"}')
    assert _follows(wanted, f"<tool_call>\n{G}\n</tool_call>")
    assert not _follows(wanted, "text")


def test_markers_that_are_special_tokens_are_tokens():
    special = ToolFormat(Format.MISTRAL, {"[TOOL_CALLS]": 257})
    wanted = constraint(_chat(tools=TWO, tool_choice="required"), special)
    matcher = guidance.compile_grammar(LIBRARY, wanted.grammar)
    ids = [257, *TOKENIZER.encode(f"[{F}]", add_special_tokens=False).ids]
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert not _follows(wanted, f"[TOOL_CALLS][{F}]")


def _deep(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


CHAIN = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(300)}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"response_format": _schema(_deep(70))}, "response_format.json_schema.schema"),
        ({"response_format": _schema({"$defs": CHAIN})}, "response_format.json_schema.schema"),
        (
            {"response_format": _schema({"pattern": "((a{99}){99}){99}"})},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": _schema({"patternProperties": {"(a{999}){999}": {}}})},
            "response_format.json_schema.schema",
        ),
        (
            {"tools": [_tool("f", {"type": "array"})], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
        ({"tools": [_tool("f", _deep(70), strict=True)]}, "tools[0].function.parameters"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
        (
            {"tools": TWO, "tool_choice": "required", "response_format": {"type": "json_object"}},
            "response_format",
        ),
    ],
)
def test_what_is_refused_names_its_parameter(changes, param):
    with pytest.raises(BadRequestError) as caught:
        constraint(_chat(**changes), HERMES)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("pattern", "largest"),
    [
        ("abc", 1),
        ("a{3}b{5}", 5),
        ("(a{3}b{5}){7}", 35),
        ("((a{2}){3,4}){5,}", 40),
        (r"\{9}[{9}\]{8}]{6}", 6),
        (r"[]{9}]\d{4}", 4),
        ("a{2}{3}", 6),
        ("a{2}+{3}", 6),
        ("a{,4}", 4),
        ("a{4", 1),
        ("(", 1),
        (")a{2}", 2),
        ("a{99999999999999999999}", structured.MAX_REPETITIONS + 1),
    ],
)
def test_repetitions_inside_repetitions(pattern, largest):
    assert repetitions(pattern) == largest


def test_the_format_of_a_model_and_its_special_markers():
    tokenizer = text_model().tokenizer
    tokenizer.add_special_tokens(["[TOOL_CALLS]"])
    found = structured.tool_format("{{ tools }}[TOOL_CALLS]", knows_tools=True, tokenizer=tokenizer)
    assert found == ToolFormat(Format.MISTRAL, {"[TOOL_CALLS]": tokenizer.token_to_id("[TOOL_CALLS]")})
    assert structured.tool_format("<tool_call>", knows_tools=True, tokenizer=tokenizer) == HERMES


@pytest.mark.parametrize(
    ("template", "knows_tools", "says"),
    [
        ("<tool_call>", False, "does not mention tools"),
        ("{{ tools }}", True, "none of hermes, llama, mistral"),
    ],
)
def test_a_model_that_cannot_call_tools_says_so(template, knows_tools, says):
    with pytest.raises(BadRequestError, match=says) as caught:
        structured.tool_format(template, knows_tools=knows_tools, tokenizer=TOKENIZER)
    assert caught.value.param == "tools"


def test_only_some_grammars_bind_the_whole_answer():
    tools = [{"type": "function", "function": {"name": "f", "strict": True}}]
    json_object = {"type": "json_object"}

    def is_whole(**parameters):
        return structured.constraint(_chat(**parameters), HERMES).is_whole

    assert is_whole(response_format=json_object)
    assert is_whole(tools=tools, tool_choice="required")
    assert is_whole(tools=tools, response_format=json_object)
    assert not is_whole(tools=tools)
    assert not is_whole()
