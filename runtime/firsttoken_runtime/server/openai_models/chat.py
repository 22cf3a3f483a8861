"""The body of /v1/chat/completions."""

from typing import Any

from pydantic import Field

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models.base import LARGEST_INT, MAX_TOP_LOGPROBS
from firsttoken_runtime.server.openai_models.generation import GenerationRequest
from firsttoken_runtime.server.openai_models.messages import AssistantMessage, Message, ToolMessage
from firsttoken_runtime.server.openai_models.structure import NamedTool, ToolChoice, Tools

__all__ = ["AssistantMessage", "ChatRequest", "Message", "ToolMessage"]


class ChatRequest(GenerationRequest):
    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_completion_tokens: int | None = Field(default=None, ge=0, le=LARGEST_INT)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_TOP_LOGPROBS)
    tools: Tools = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    """None = `auto` with tools, `none` without."""
    parallel_tool_calls: bool = True
    add_generation_prompt: bool | None = None
    """None = unless the final message is continued."""
    continue_final_message: bool = False
    add_special_tokens: bool = False
    """The template writes them itself; adding them again would double BOS."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens` is the newer name and wins."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def top_logprobs_wanted(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def opens_an_answer(self) -> bool:
        """Whether the prompt ends with the head of the assistant's turn."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    @property
    def may_call_tools(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise errors.BadRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
        if self.continue_final_message and self.add_generation_prompt:
            raise errors.BadRequestError(
                "continue_final_message and add_generation_prompt exclude each other",
                param="continue_final_message",
            )
        if self.token_limit == 0 and self.prompt_logprobs is None:
            name = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
            raise errors.BadRequestError(f"{name}: 0 is only allowed with prompt_logprobs", param=name)
        self._check_tool_choice()

    def _check_tool_choice(self) -> None:
        if self.tool_choice in (None, "none", "auto"):
            return
        if not self.tools:
            raise errors.BadRequestError("tool_choice needs tools", param="tool_choice")
        if isinstance(self.tool_choice, NamedTool):
            name = self.tool_choice.function.name
            if name not in {tool.function.name for tool in self.tools}:
                raise errors.BadRequestError(
                    f"tool_choice names {name!r}, which is not in tools", param="tool_choice"
                )
