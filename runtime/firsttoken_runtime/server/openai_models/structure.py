"""What an answer has to look like: `response_format`, `tools` and `tool_choice`."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from firsttoken_runtime.server.openai_models.base import Part

MAX_TOOLS = 128

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class TextFormat(Part):
    type: Literal["text"]


class JsonObjectFormat(Part):
    type: Literal["json_object"]


class JsonSchema(Part):
    name: Name
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    """None = any JSON object."""
    strict: bool | None = None


class JsonSchemaFormat(Part):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class Function(Part):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Part):
    type: Literal["function"]
    function: Function


class FunctionName(Part):
    name: Name


class NamedTool(Part):
    type: Literal["function"]
    function: FunctionName


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool
