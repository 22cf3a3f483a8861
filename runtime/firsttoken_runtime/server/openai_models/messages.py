"""The messages of a chat, and how chat templates know them."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from firsttoken_runtime.server.openai_models.base import Part
from firsttoken_runtime.server.openai_models.structure import Name


class TextPart(Part):
    type: Literal["text"]
    text: str

    @field_validator("type", mode="before")
    @classmethod
    def _is_text(cls, kind: Any) -> Any:
        if kind != "text" and isinstance(kind, str):
            raise PydanticCustomError(
                "not_text", "{kind} parts are not supported: this server reads text only", {"kind": kind[:64]}
            )
        return kind


Content = str | Annotated[list[TextPart], Field(max_length=4096)]


class _Message(Part):
    name: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates know it."""
        raise NotImplementedError

    def _named(self, message: dict[str, Any]) -> dict[str, Any]:
        return message | ({"name": self.name} if self.name else {})


def as_text(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


class TextMessage(_Message):
    role: Literal["system", "developer", "user"]
    content: Content

    def for_template(self) -> dict[str, Any]:
        """`developer` is OpenAI's newer word for `system`."""
        role = "system" if self.role == "developer" else self.role
        return self._named({"role": role, "content": as_text(self.content)})


class CalledFunction(Part):
    name: Name
    arguments: str

    @field_validator("arguments")
    @classmethod
    def _is_an_object(cls, arguments: str) -> str:
        """Templates take the arguments apart, so they have to be what the answer that is sent back had."""
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise PydanticCustomError("not_json", "arguments are not JSON") from error
        if not isinstance(parsed, dict):
            raise PydanticCustomError("not_an_object", "arguments are not a JSON object")
        return arguments


class CalledTool(Part):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        function = {"name": self.function.name, "arguments": json.loads(self.function.arguments or "{}")}
        return {"id": self.id, "type": "function", "function": function}


class AssistantMessage(_Message):
    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: list[CalledTool] | None = Field(default=None, max_length=128)

    def for_template(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "" if self.content is None else as_text(self.content),
        }
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        return self._named(message)


class ToolMessage(_Message):
    role: Literal["tool"]
    content: Content
    tool_call_id: str | None = None

    def for_template(self) -> dict[str, Any]:
        message = {"role": "tool", "content": as_text(self.content)}
        return self._named(message | ({"tool_call_id": self.tool_call_id} if self.tool_call_id else {}))


Message = Annotated[TextMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
