"""What a chat and a completion share: how the answer is sampled, where it ends, how it is sent."""

from typing import Annotated

from pydantic import Field, StringConstraints

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models.base import (
    LARGEST_INT,
    MAX_TOP_LOGPROBS,
    CachedBody,
    Label,
    Part,
    TokenId,
    TokenKey,
    at_most,
)
from firsttoken_runtime.server.openai_models.structure import ResponseFormat

SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
MAX_STOPS = 16
MAX_CHOICES = 16
MAX_BIASED_TOKENS = 300

StopString = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class StreamOptions(Part):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationRequest(CachedBody):
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=0, le=LARGEST_INT)
    min_tokens: int = Field(default=0, ge=0, le=LARGEST_INT)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST_INT)
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    logit_bias: Annotated[dict[TokenKey, Bias], at_most(MAX_BIASED_TOKENS)] = Field(default_factory=dict)
    seed: int | None = Field(default=None, ge=SEED_MIN, le=SEED_MAX)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=64)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    return_tokens_as_token_ids: bool = False
    """In logprobs: `token_id:<id>` instead of text, which two tokens may share."""
    response_format: ResponseFormat | None = None
    priority: int = Field(default=0, ge=-LARGEST_INT, le=LARGEST_INT)
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    metadata: Annotated[dict[str, Label], at_most(64)] = Field(default_factory=dict)

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_running_usage(self) -> bool:
        """`usage` in every chunk."""
        options = self.stream_options
        return options is not None and options.include_usage and options.continuous_usage_stats

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate; None = whatever the context has left."""
        return self.max_tokens

    @property
    def asked_token_limit(self) -> int | None:
        """The same, where the client itself said so."""
        return self.token_limit

    @property
    def top_logprobs_wanted(self) -> int | None:
        """None = no logprobs; else so many alternatives beside each token."""
        raise NotImplementedError

    @property
    def prompt_logprobs_wanted(self) -> int | None:
        return self.prompt_logprobs

    def check(self) -> None:
        if self.stream_options is not None and not self.stream:
            raise errors.BadRequestError("stream_options needs stream: true", param="stream_options")
        if self.prompt_logprobs is not None and self.stream:
            raise errors.BadRequestError(
                "prompt_logprobs are not sent in a stream; leave out stream, or use /v1/score",
                param="prompt_logprobs",
            )
        limit = self.token_limit
        if limit is not None and self.min_tokens > limit:
            raise errors.BadRequestError(
                f"min_tokens ({self.min_tokens}) is larger than max_tokens ({limit})", param="min_tokens"
            )
