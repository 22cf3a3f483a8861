"""The shapes of all answers, as OpenAI's clients (and vLLM's additions) know them.

`/openapi.json` is generated from these, and tests hold the answers to them.
"""

from typing import Any, Literal, NotRequired, TypedDict

from firsttoken_runtime.server.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprobs,
    ScoredToken,
)

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(TypedDict):
    cached_tokens: int


class Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Timing(TypedDict):
    """The stages add up to the time to the first token."""

    ttft_ms: float
    stages_ms: dict[str, float]


class ToolCallFunction(TypedDict):
    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: ToolCallFunction


class ChatMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[PromptLogprobs]
    timing: NotRequired[Timing]


class CompletionChoice(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    prompt_logprobs: NotRequired[PromptLogprobs]


class Completion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    timing: NotRequired[Timing]


class Score(TypedDict):
    """`logprobs[i]` is the logarithm of the probability of `token_ids[i]` after those before it."""

    index: int
    object: Literal["score"]
    token_ids: list[int]
    tokens: list[str]
    logprobs: list[float | None]
    ranks: list[int | None]
    top_logprobs: NotRequired[list[list[ScoredToken] | None]]
    sum: float
    count: int


class ScoreList(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: Usage


class Tokens(TypedDict):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class RequestEstimate(TypedDict):
    prompt_tokens: int
    cached_tokens: int
    ahead_tokens: int


class Text(TypedDict):
    prompt: str


class ModelCard(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: None
    max_model_len: int
    permission: list[Any]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelCard]
