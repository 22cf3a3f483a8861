"""The body of /v1/score: how likely a model finds texts."""

from typing import Annotated

from pydantic import Field

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models.base import (
    LARGEST_INT,
    MAX_SEQUENCES,
    MAX_TOP_LOGPROBS,
    CachedBody,
    TokenIds,
)

Prompt = str | TokenIds


class ScoreRequest(CachedBody):
    prompt: Prompt | None = None
    prompts: Annotated[list[Prompt], Field(fail_fast=True, min_length=1, max_length=MAX_SEQUENCES)] | None = (
        None
    )
    top: int = Field(default=0, ge=0, le=MAX_TOP_LOGPROBS)
    """So many of the likeliest tokens at each place."""
    add_special_tokens: bool = True
    """For prompts that are texts."""
    priority: int = Field(default=0, ge=-LARGEST_INT, le=LARGEST_INT)

    @property
    def all_prompts(self) -> list[str | list[int]]:
        if self.prompts is not None:
            return list(self.prompts)
        assert self.prompt is not None, "checked"
        return [self.prompt]

    def check(self) -> None:
        if (self.prompt is None) == (self.prompts is None):
            raise errors.BadRequestError("one of prompt and prompts is required", param="prompt")
