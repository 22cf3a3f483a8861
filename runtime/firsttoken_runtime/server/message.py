"""The text of a chat's answer as pieces of its message: content, reasoning, calls of tools.

What a model writes depends on its chat template, and so do the parsers that are put in a row here; a model
that neither thinks aloud nor is given tools has plain text, which costs nothing.
"""

from firsttoken_runtime.server import reasoning, structured, tool_calls
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.choice import Json, Shaper, TextShaper
from firsttoken_runtime.server.openai_models import ChatRequest
from firsttoken_runtime.server.parts import Arguments, CallStart, Content, Part, Reasoning
from firsttoken_runtime.server.tokenizer import TextModel


def tool_format(
    request: ChatRequest, text_model: TextModel, template: ChatTemplate | None
) -> structured.ToolFormat | None:
    """How the model calls the request's tools; None if it may not call any.

    Raises BadRequestError for a model whose template is not told of tools, or teaches no format that is read.
    """
    if not request.may_call_tools:
        return None
    return structured.tool_format(
        text_model.chat_template or "",
        knows_tools=template is not None and template.knows_tools,
        tokenizer=text_model.tokenizer,
    )


def shaper(
    request: ChatRequest,
    text_model: TextModel,
    calls: structured.ToolFormat | None,
    *,
    starts_inside_reasoning: bool,
    is_whole_grammar: bool = False,
) -> Shaper:
    """Under a grammar that binds the whole answer nothing of it is reasoning, even where the template has
    begun that: what the grammar makes would all be taken for it."""
    can_think = not request.continue_final_message and not is_whole_grammar
    thinks = can_think and reasoning.is_used_by(text_model.chat_template or "")
    if not thinks and calls is None:
        return TextShaper("content")
    names = frozenset(tool.function.name for tool in request.tools)
    return MessageShaper(
        reasoning.ReasoningParser(starts_inside=starts_inside_reasoning) if thinks else None,
        None if calls is None else tool_calls.ToolCallParser(calls.format, names),
        most_calls=None if request.parallel_tool_calls else 1,
    )


class MessageShaper:
    """`most_calls`: what follows so many calls of tools is left out; None = nothing is."""

    empty: Json = {"content": ""}  # noqa: RUF012

    def __init__(
        self,
        thoughts: reasoning.ReasoningParser | None,
        calls: tool_calls.ToolCallParser | None,
        *,
        most_calls: int | None = None,
    ) -> None:
        self._thoughts = thoughts
        self._calls = calls
        self._most_calls = most_calls

    @property
    def has_called_tools(self) -> bool:
        return self._calls is not None and self._calls.has_called_tools

    def feed(self, text: str) -> list[Json]:
        parts: list[Part] = [Content(text)] if self._thoughts is None else self._thoughts.feed(text)
        return self._deltas(self._with_calls(parts))

    def flush(self) -> list[Json]:
        parts = self._with_calls([] if self._thoughts is None else self._thoughts.flush())
        if self._calls is not None:
            parts += self._calls.flush()
        return self._deltas(parts)

    def _with_calls(self, parts: list[Part]) -> list[Part]:
        if self._calls is None:
            return parts
        found: list[Part] = []
        for part in parts:
            found += self._calls.feed(part.text) if isinstance(part, Content) else [part]
        return found

    def _deltas(self, parts: list[Part]) -> list[Json]:
        return [_delta(part) for part in parts if self._is_wanted(part)]

    def _is_wanted(self, part: Part) -> bool:
        if self._most_calls is None or not isinstance(part, CallStart | Arguments):
            return True
        return part.index < self._most_calls


def _delta(part: Part) -> Json:
    match part:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStart(index, name, call_id):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case Arguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
