"""The request bodies of all endpoints that take one, checked before anything is queued.

Types are strict and every number must be finite and in range; an error names the parameter. `null` means
the default, as in OpenAI's API. `refused` has what is not built, with the reason; it is never ignored.
"""

from firsttoken_runtime.server.openai_models.base import Body
from firsttoken_runtime.server.openai_models.chat import AssistantMessage, ChatRequest, Message, ToolMessage
from firsttoken_runtime.server.openai_models.completion import CompletionRequest
from firsttoken_runtime.server.openai_models.generation import GenerationRequest
from firsttoken_runtime.server.openai_models.parsing import parse
from firsttoken_runtime.server.openai_models.refused import REFUSED, UnknownNames
from firsttoken_runtime.server.openai_models.score import ScoreRequest
from firsttoken_runtime.server.openai_models.structure import (
    JsonObjectFormat,
    JsonSchemaFormat,
    NamedTool,
    TextFormat,
    Tool,
)
from firsttoken_runtime.server.openai_models.tokenize import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizePromptRequest,
)

__all__ = [
    "REFUSED",
    "AssistantMessage",
    "Body",
    "ChatRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "GenerationRequest",
    "JsonObjectFormat",
    "JsonSchemaFormat",
    "Message",
    "NamedTool",
    "ScoreRequest",
    "TextFormat",
    "TokenizeChatRequest",
    "TokenizePromptRequest",
    "Tool",
    "ToolMessage",
    "UnknownNames",
    "parse",
]
