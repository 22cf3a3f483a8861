"""The body of /v1/completions."""

from typing import Annotated

from pydantic import Field

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models.base import (
    LARGEST_INT,
    MAX_SEQUENCES,
    MAX_TOP_LOGPROBS,
    TokenIds,
)
from firsttoken_runtime.server.openai_models.generation import GenerationRequest


class CompletionRequest(GenerationRequest):
    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[TokenIds], Field(fail_fast=True)]
    )
    max_tokens: int | None = Field(default=16, ge=0, le=LARGEST_INT)
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    echo: bool = False
    best_of: int | None = Field(default=None, ge=1, le=LARGEST_INT)
    add_special_tokens: bool = True

    @classmethod
    def nullable(cls) -> frozenset[str]:
        """Left out, `max_tokens` is OpenAI's 16; `null` fills the context."""
        return frozenset({"max_tokens"})

    @property
    def prompts(self) -> list[str | list[int]]:
        """A list of numbers is one prompt; an empty list is one without tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [part for part in self.prompt if isinstance(part, str)]
        lists = [part for part in self.prompt if isinstance(part, list)]
        return [*texts, *lists] or [[part for part in self.prompt if isinstance(part, int)]]

    @property
    def asked_token_limit(self) -> int | None:
        return self.max_tokens if "max_tokens" in self.model_fields_set else None

    @property
    def top_logprobs_wanted(self) -> int | None:
        return self.logprobs

    @property
    def prompt_logprobs_wanted(self) -> int | None:
        """An echo has the logprobs of what it repeats."""
        if self.prompt_logprobs is not None:
            return max(self.prompt_logprobs, (self.logprobs or 0) if self.echo else 0)
        if self.echo and self.logprobs is not None:
            return self.logprobs
        return 0 if self.max_tokens == 0 else None

    def check(self) -> None:
        super().check()
        if self.best_of is not None and self.best_of != self.n:
            raise errors.BadRequestError(
                f"best_of ({self.best_of}) is not supported unless it equals n ({self.n}): answers are not "
                "ranked; ask for n answers with logprobs",
                param="best_of",
            )
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise errors.BadRequestError(
                "max_tokens: 0 is only allowed with echo or prompt_logprobs", param="max_tokens"
            )
        if len(self.prompts) * self.n > MAX_SEQUENCES:
            raise errors.BadRequestError(
                f"prompt: {len(self.prompts)} prompts x n = {len(self.prompts) * self.n} answers; "
                f"a request may ask for {MAX_SEQUENCES}",
                param="prompt",
            )
