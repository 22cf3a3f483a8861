"""The bodies of /tokenize (vLLM's two forms) and /detokenize."""

from typing import Any

from pydantic import Field

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models.base import Body, TokenIds
from firsttoken_runtime.server.openai_models.messages import Message
from firsttoken_runtime.server.openai_models.structure import Tools


class TokenizePromptRequest(Body):
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeChatRequest(Body):
    messages: list[Message] = Field(min_length=1, max_length=4096)
    tools: Tools = Field(default_factory=list)
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    return_token_strs: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def opens_an_answer(self) -> bool:
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    def check(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            raise errors.BadRequestError(
                "continue_final_message and add_generation_prompt exclude each other",
                param="continue_final_message",
            )


class DetokenizeRequest(Body):
    tokens: TokenIds
