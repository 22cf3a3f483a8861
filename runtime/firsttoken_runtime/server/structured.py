"""The grammar that an answer must follow, from `response_format`, `tools` and `tool_choice`. Pure.

Limits that the grammar library does not have are here: nesting, references and repetitions inside
repetitions, which overflow its stack or its memory. What it says of the rest, `grammar_check` finds out.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.openai_models.structure import (
    JsonObjectFormat,
    JsonSchemaFormat,
    NamedTool,
    Tool,
)
from firsttoken_runtime.server.tool_calls import CLOSE, OPEN, Format, format_of

MAX_DEPTH = 64
MAX_REFERENCES = 256
MAX_REPETITIONS = 10_000
MAX_CALLS = 16

# Of one gap: a space, or a new line with its indentation. Unbounded, a small model may write nothing else.
OPTIONS = {"whitespace_pattern": r"[ ]?|\n[ ]{0,24}", "lenient": False, "coerce_one_of": False}
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Constraint:
    """`grammar` "" = free text. `parts`: the parameters it comes from, each as a grammar to be checked."""

    grammar: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    is_whole: bool = False
    """It leaves no room for other text, so there is none that could be thoughts."""


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls; markers that are special tokens have ids, all others are text."""

    format: Format
    special_ids: Mapping[str, int] = field(default_factory=dict)

    def marker(self, text: str) -> str:
        """A marker in the grammar's notation."""
        special = self.special_ids.get(text)
        return json.dumps(text) if special is None else f"<[{special}]>"


FREE = Constraint()


def tool_format(template: str, *, knows_tools: bool, tokenizer: tokenizers.Tokenizer) -> ToolFormat:
    """For a request that may call tools. Raises BadRequestError when this model cannot."""
    kind = format_of(template)
    if not knows_tools or kind is None:
        why = (
            "its chat template does not mention tools"
            if not knows_tools
            else f"the calls its chat template describes are none of {', '.join(one.value for one in Format)}"
        )
        raise errors.BadRequestError(
            f"tools cannot be used with this model: {why}; leave them out or set tool_choice to none",
            param="tools",
        )
    added = tokenizer.get_added_tokens_decoder().items()
    markers = (OPEN[kind], CLOSE[kind])
    ids = {token.content: number for number, token in added if token.special and token.content in markers}
    return ToolFormat(kind, ids)


def constraint(request: ChatRequest | CompletionRequest, tool_format: ToolFormat | None = None) -> Constraint:
    """What the whole answer must look like. Raises BadRequestError that names the parameter.

    `tool_format` is needed when the request may call tools.
    """
    wanted = _answer(request.response_format)
    if isinstance(request, ChatRequest) and request.may_call_tools:
        assert tool_format is not None, "tools of a model without a format are refused before"
        wanted = _with_tools(request, tool_format, wanted)
    if wanted.grammar and request.ignore_eos:
        raise errors.BadRequestError(
            "ignore_eos cannot be combined with response_format or forced tools: a complete answer ends",
            param="ignore_eos",
        )
    return wanted


def _answer(response_format: Any) -> Constraint:
    match response_format:
        case JsonObjectFormat():
            return _of_schema("response_format", _ANY_OBJECT)
        case JsonSchemaFormat(json_schema=asked):
            param = "response_format.json_schema.schema"
            return _of_schema(param, _ANY_OBJECT if asked.schema_ is None else asked.schema_)
    return FREE


def _of_schema(param: str, schema: dict[str, Any]) -> Constraint:
    text = _lark({"start": _json(schema, param)})
    return Constraint(text, ((param, text),), is_whole=True)


def _with_tools(request: ChatRequest, tool_format: ToolFormat, answer: Constraint) -> Constraint:
    choice = request.tool_choice
    named = choice.function.name if isinstance(choice, NamedTool) else ""
    is_forced = bool(named) or choice == "required"
    if is_forced and answer.grammar:
        raise errors.BadRequestError(
            "tool_choice asks for a call and response_format for an answer; ask for one of them",
            param="response_format",
        )
    is_strict = any(tool.function.strict for tool in request.tools)
    if not is_forced and not is_strict and not answer.grammar:
        return FREE
    chosen = [(index, tool) for index, tool in enumerate(request.tools) if named in ("", tool.function.name)]
    rules, parts = {}, list(answer.parts)
    for index, tool in chosen:
        param = f"tools[{index}].function.parameters"
        # Asked for and not strict: the schema holds too; only an unforced call of a lax tool is any object.
        schema = _parameters(tool, param) if is_forced or tool.function.strict else _ANY_OBJECT
        rules[f"arguments_{index}"] = _json(schema, param)
        rules[f"call_{index}"] = _call(tool_format.format, tool, f"arguments_{index}")
        parts.append((param, _lark({"start": rules[f"arguments_{index}"]})))
    rules["call"] = " | ".join(f"call_{index}" for index, _ in chosen)
    most = MAX_CALLS if request.parallel_tool_calls and not named else 1
    rules |= _calls(tool_format, most)
    if answer.grammar:
        rules["answer"] = _json(_schema_of(request), "response_format")
        start = "calls | answer"
    else:
        start = "calls" if is_forced else _free_or_calls(tool_format, rules)
    text = _lark({"start": start} | rules)
    return Constraint(text, tuple(parts), is_whole=is_forced or bool(answer.grammar))


def _schema_of(request: ChatRequest) -> dict[str, Any]:
    asked = request.response_format
    schema = asked.json_schema.schema_ if isinstance(asked, JsonSchemaFormat) else None
    return _ANY_OBJECT if schema is None else schema


def _parameters(tool: Tool, param: str) -> dict[str, Any]:
    schema = tool.function.parameters
    if not schema:
        return _NO_ARGUMENTS
    if schema.get("type", "object") != "object":
        raise errors.BadRequestError(f"{param}: its type must be object", param=param)
    return {"type": "object"} | schema


def _call(kind: Format, tool: Tool, arguments: str) -> str:
    key = "parameters" if kind is Format.LLAMA else "arguments"
    begin = f'{{"name": {json.dumps(tool.function.name)}, "{key}": '
    return f'{json.dumps(begin)} {arguments} "}}"'


def _calls(tool_format: ToolFormat, most: int) -> dict[str, str]:
    kind = tool_format.format
    more = most - 1
    opened, closed = tool_format.marker(OPEN[kind]), tool_format.marker(CLOSE[kind]) if CLOSE[kind] else ""
    match kind:
        case Format.HERMES:
            rules = {"block": f"{opened} block_body", "block_body": f'"\\n" call "\\n" {closed}'}
            return rules | {"calls": "block" + (f' ("\\n" block){{0,{more}}}' if more else "")}
        case Format.MISTRAL:
            body = "call" + (f' (", " call){{0,{more}}}' if more else "")
            return {"block_body": f'"[" {body} "]"', "calls": f"{opened} block_body"}
        case Format.LLAMA:
            return {"calls": "call" + (f' ("; " call){{0,{more}}}' if more else "")}


def _free_or_calls(tool_format: ToolFormat, rules: dict[str, str]) -> str:
    """Text, in which every call that is begun follows its schema."""
    kind = tool_format.format
    if kind is Format.LLAMA:
        rules["FREE"] = r"/([^ \t\r\n{<](.|\n)*)?/"
        return "calls | FREE"
    rules["TEXT"] = r"/(.|\n)*/"
    is_special = OPEN[kind] in tool_format.special_ids
    rules["head" if is_special else "head[lazy]"] = f"TEXT {tool_format.marker(OPEN[kind])}"
    rules.pop("calls")
    rules.pop("block", None)
    rules["tail"] = "TEXT"
    return "(head block_body)* tail"


def _lark(rules: Mapping[str, str]) -> str:
    return "%llguidance {}\n" + "\n".join(f"{name}: {rule}" for name, rule in rules.items()) + "\n"


def _json(schema: dict[str, Any], param: str) -> str:
    check_schema(schema, param)
    return "%json " + json.dumps(schema | {"x-guidance": OPTIONS})


def check_schema(schema: dict[str, Any], param: str) -> None:
    """Raises BadRequestError for what would cost the library its stack or its memory."""
    references = 0
    for depth, key, value in _walk(schema):
        if depth > MAX_DEPTH:
            raise errors.BadRequestError(f"{param} is nested more than {MAX_DEPTH} deep", param=param)
        references += key in ("$ref", "$dynamicRef")
        if references > MAX_REFERENCES:
            raise errors.BadRequestError(f"{param} has more than {MAX_REFERENCES} references", param=param)
        patterns = [value] if key == "pattern" else value if key == "patternProperties" else ()
        for pattern in patterns:
            if isinstance(pattern, str) and repetitions(pattern) > MAX_REPETITIONS:
                raise errors.BadRequestError(
                    f"{param}: the pattern {pattern[:64]!r} repeats more than {MAX_REPETITIONS} times",
                    param=param,
                )


def _walk(schema: dict[str, Any]) -> Iterator[tuple[int, str, Any]]:
    """Every key with its depth and value. With a stack of its own: the depth is not trusted yet."""
    stack: list[tuple[int, Any]] = [(1, schema)]
    while stack:
        depth, value = stack.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                yield depth, key, inner
                stack.append((depth + 1, inner))
        elif isinstance(value, list):
            yield depth, "", value
            stack += [(depth + 1, inner) for inner in value]


def repetitions(pattern: str) -> int:
    """The largest product of counted repetitions inside each other: `(a{3}b{5}){7}` -> 35."""
    closed, groups, at = 1, [1], 0  # of the last atom; of each open group
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            closed, at = 1, at + 1
        elif char == "[":
            closed, at = 1, _end_of_class(pattern, at)
        elif char == "(":
            groups.append(1)
        elif char == ")" and len(groups) > 1:
            closed = groups.pop()
        elif char == "{":
            end = pattern.find("}", at)
            counts = [int(part) for part in pattern[at:end].split(",") if part.strip().isdecimal()]
            closed *= max([1, *(min(count, MAX_REPETITIONS + 1) for count in counts)])
        elif char not in "?*+}0123456789,":
            closed = 1
        groups[-1] = max(groups[-1], closed)
    return max(groups)


def _end_of_class(pattern: str, at: int) -> int:
    """After the `]` of a character class that began before `at`."""
    first = at
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        at += 2 if pattern[at] == "\\" else 1
    return at + 1
