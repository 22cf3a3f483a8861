"""The request bodies of /v1/chat/completions and /v1/completions, checked before anything is queued.

Types are strict and every number must be finite and in range; an error names the parameter. `null` means
the default, as in OpenAI's API. What this version cannot do is in `REFUSED`: such a parameter is accepted
at its default and refused at any other value, never ignored. Names that nobody defines are ignored, with
one warning each in the log.
"""

import json
import logging
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from firsttoken_api import errors

log = logging.getLogger(__name__)

SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1
LARGEST_INT = 2**31 - 1
MAX_STOPS = 16

# Parameter -> the values that mean "not asked for". Lists are compared by type and value.
REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "length_penalty": (1, 1.0),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "echo": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "chat_template": (),
    "continue_final_message": (False,),
    "add_special_tokens": (),
    "documents": ([],),
    "use_beam_search": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "logits_processors": ([],),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "shared_prefix_tokens": (0,),
    "priority": (0,),
}

# Who asks and how to file it: nothing in the answer depends on them.
WITHOUT_EFFECT = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "cache_salt"})

# In a message: what it would carry if tools or other media were supported.
REFUSED_IN_MESSAGE = frozenset({"tool_calls", "function_call", "tool_call_id", "audio", "images"})

MAX_NAMES_WARNED = 256


class UnknownNames:
    """Names of parameters that nobody defines, warned about once. Clients choose them, so there is an end."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def warn(self, name: str) -> None:
        name = name[:64]
        if name not in self._seen and len(self._seen) < MAX_NAMES_WARNED:
            self._seen.add(name)
            log.warning("a request has the unknown parameter %r; it is ignored", name)


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)


class StreamOptions(_Body):
    include_usage: bool = False
    continuous_usage_stats: Literal[False] = False


class TextPart(_Body):
    type: Literal["text"]
    text: str


class Message(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates know it: `developer` is OpenAI's newer word for `system`."""
        text = (
            self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        )
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})


StopString = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
TokenId = Annotated[int, Field(ge=0, le=LARGEST_INT)]


class _Generation(_Body):
    """What both kinds of request share."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=LARGEST_INT)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST_INT)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=SEED_MIN, le=SEED_MAX)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=64)
    include_stop_str_in_output: bool = False
    min_tokens: int = Field(default=0, ge=0, le=LARGEST_INT)
    ignore_eos: bool = False

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        """`null` is the default, whatever the parameter."""
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None or name in cls.nullable()}

    @classmethod
    def nullable(cls) -> frozenset[str]:
        """Parameters whose `null` differs from leaving them out."""
        return frozenset()

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate; None = whatever the context has left."""
        return self.max_tokens


class ChatRequest(_Generation):
    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=LARGEST_INT)
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens` is the newer name and wins."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionRequest(_Generation):
    prompt: str | list[TokenId] | list[str]
    max_tokens: int | None = Field(default=16, ge=1, le=LARGEST_INT)

    @classmethod
    def nullable(cls) -> frozenset[str]:
        """Left out, `max_tokens` is OpenAI's 16; `null` fills the context."""
        return frozenset({"max_tokens"})


RequestT = TypeVar("RequestT", ChatRequest, CompletionRequest)


def parse(kind: type[RequestT], body: bytes, unknown: UnknownNames) -> RequestT:
    """The checked request. Raises BadRequestError that names the first wrong parameter."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(kind, error) from error
    _check_extras(request, unknown)
    if request.stream_options is not None and not request.stream:
        raise errors.BadRequestError("stream_options needs stream: true", param="stream_options")
    limit = request.token_limit
    if limit is not None and request.min_tokens > limit:
        raise errors.BadRequestError(
            f"min_tokens ({request.min_tokens}) is larger than max_tokens ({limit})", param="min_tokens"
        )
    return request


def _check_extras(request: _Generation, unknown: UnknownNames) -> None:
    for name, value in (request.model_extra or {}).items():
        if name in REFUSED:
            if not _is_default(value, REFUSED[name]):
                raise errors.BadRequestError(_not_supported(name), param=name)
        elif name not in WITHOUT_EFFECT:
            unknown.warn(name)
    if request.stream_options is not None:
        for name in request.stream_options.model_extra or {}:
            unknown.warn(f"stream_options.{name}")
    if isinstance(request, ChatRequest):
        for index, message in enumerate(request.messages):
            _check_message(index, message, unknown)


def _check_message(index: int, message: Message, unknown: UnknownNames) -> None:
    for name, value in (message.model_extra or {}).items():
        if name not in REFUSED_IN_MESSAGE:
            unknown.warn(f"messages.{name}")
        elif value:
            param = f"messages[{index}].{name}"
            raise errors.BadRequestError(f"{param} is not supported in this version", param=param)


def _not_supported(name: str) -> str:
    allowed = " or ".join(json.dumps(value) for value in REFUSED[name][:1])
    remedy = f"leave it out or set it to {allowed}" if allowed else "leave it out"
    return f"{name} is not supported in this version; {remedy}"


def _is_default(value: Any, defaults: tuple[Any, ...]) -> bool:
    """Equal in value and type: `true` is not 1."""
    return any(type(value) is type(default) and value == default for default in defaults)


def _refusal(kind: type[BaseModel], error: ValidationError) -> errors.BadRequestError:
    """The deepest of pydantic's findings: for a union it is the member that came closest."""
    found = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    param = _param(found["loc"])
    if not param:
        return errors.BadRequestError(f"the body is not a JSON object: {found['msg']}")
    if found["type"] == "missing":
        return errors.BadRequestError(f"{param} is required", param=param)
    return errors.BadRequestError(f"{param}: {found['msg']}", param=param)


def _param(location: tuple[int | str, ...]) -> str:
    """`("messages", 0, "content", "list[TextPart]", 1, "text")` -> `messages[0].content[1].text`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in _FIELD_NAMES:
            path += f".{part}" if path else part
    return path


_FIELD_NAMES = frozenset(
    name
    for model in (ChatRequest, CompletionRequest, Message, TextPart, StreamOptions)
    for name in model.model_fields
)
