"""What the body of a request for tokens says that admission, routing and joining need to know. Pure.

A body that is not JSON, or not of the form we know, is not refused here: it goes on as it came, and the
engine says what is wrong with it. So nothing in this module raises.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from firsttoken_api import names
from firsttoken_api.hot_settings import HotSettings
from firsttoken_sidecar import classes

INSPECTED_BYTES = 1024 * 1024
"""A larger body is passed on as it comes, and not looked into."""
PREFIX_PIECE_BYTES = 512
MOST_PREFIX_KEYS = 256
KEYED_BYTES = PREFIX_PIECE_BYTES * MOST_PREFIX_KEYS
KEY_BYTES = 16
DEFAULT_BYTES_PER_TOKEN = 4.0
_IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(eq=False)
class Inspected:
    """One body, and the headers that go with it."""

    body: bytes | None = field(default=None, repr=False)
    """None: it is not in memory, since it is larger than `INSPECTED_BYTES`, or was sent for good."""
    body_hash: bytes = b""
    """Of the whole body; empty when it is not in memory."""
    model: str = ""
    request_class: str = ""
    """By name; empty when none are declared. A name that nobody knows stays: the engine refuses it."""
    route: str = ""
    prompt_bytes: int = 0
    estimated_prompt_tokens: int = 0
    max_tokens: int | None = None
    prefix_keys: tuple[bytes, ...] = ()
    """One for each whole piece of the prompt; each stands for all the text up to there."""
    is_repeatable: bool = False
    """Asked again, the answer would be the same: temperature 0, or a seed."""
    is_streamed: bool = False
    idempotency_key: str = ""


class _Body(msgspec.Struct):
    """The fields that are read. Of any type, since a wrong one is the engine's to refuse."""

    model: Any = ""
    messages: Any = None
    prompt: Any = None
    tools: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    temperature: Any = None
    seed: Any = None
    stream: Any = None


_DECODER = msgspec.json.Decoder(_Body)
_ENCODER = msgspec.json.Encoder()


def inspect(
    headers: Mapping[str, str],
    body: bytes,
    *,
    tenant: str,
    settings: HotSettings | None,
    max_class: str = "",
    bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN,
) -> Inspected:
    """A body that is whole. `settings`: None while no flags document is known."""
    parsed = _parsed(body)
    model = parsed.model if isinstance(parsed.model, str) else ""
    text, prompt_bytes = _beginning(_pieces_of_text(parsed))
    token_ids = _token_ids(parsed.prompt)
    return Inspected(
        body=body,
        body_hash=hashlib.blake2b(body, digest_size=KEY_BYTES).digest(),
        model=model,
        request_class=_class(headers, model, max_class, settings),
        route=classes.route_name(headers, model),
        prompt_bytes=prompt_bytes,
        estimated_prompt_tokens=token_ids or -int(-prompt_bytes // bytes_per_token),
        max_tokens=_count(parsed.max_completion_tokens) or _count(parsed.max_tokens),
        prefix_keys=prefix_keys(tenant, text),
        is_repeatable=_is_repeatable(parsed),
        is_streamed=parsed.stream is True,
        idempotency_key=headers.get(_IDEMPOTENCY_KEY, ""),
    )


def unseen(
    headers: Mapping[str, str],
    content_length: int,
    *,
    settings: HotSettings | None,
    max_class: str = "",
    bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN,
) -> Inspected:
    """What headers alone tell of a body that is not read here; all of it counts as prompt."""
    return Inspected(
        request_class=_class(headers, "", max_class, settings),
        route=classes.route_name(headers, ""),
        prompt_bytes=content_length,
        estimated_prompt_tokens=-int(-content_length // bytes_per_token),
        idempotency_key=headers.get(_IDEMPOTENCY_KEY, ""),
    )


def prefix_keys(tenant: str, text: bytes) -> tuple[bytes, ...]:
    """A key for each whole piece, chained, so that equal keys mean equal text from the start."""
    keys: list[bytes] = []
    key = hashlib.blake2b(tenant.encode(errors="surrogateescape"), digest_size=KEY_BYTES).digest()
    whole_bytes = min(len(text) // PREFIX_PIECE_BYTES, MOST_PREFIX_KEYS) * PREFIX_PIECE_BYTES
    for start in range(0, whole_bytes, PREFIX_PIECE_BYTES):
        piece = text[start : start + PREFIX_PIECE_BYTES]
        key = hashlib.blake2b(key + piece, digest_size=KEY_BYTES).digest()
        keys.append(key)
    return tuple(keys)


def _parsed(body: bytes) -> _Body:
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Body()


def _class(headers: Mapping[str, str], model: str, max_class: str, settings: HotSettings | None) -> str:
    if settings is None:
        return headers.get(names.HEADER_CLASS, "")
    return classes.lowered(classes.asked(headers, model, settings), max_class, settings)


def _beginning(pieces: Iterator[bytes]) -> tuple[bytes, int]:
    """As much of the text as keys are made of, and the length of all of it."""
    kept: list[bytes] = []
    total_bytes = 0
    for piece in pieces:
        if total_bytes < KEYED_BYTES:
            kept.append(piece)
        total_bytes += len(piece)
    return b"".join(kept), total_bytes


def _pieces_of_text(body: _Body) -> Iterator[bytes]:
    """Tools before messages, as templates put them; each message as role and content."""
    if body.tools:
        yield _ENCODER.encode(body.tools)
    for message in body.messages if isinstance(body.messages, list) else ():
        if not isinstance(message, dict):
            yield _ENCODER.encode(message)
            continue
        yield _text(message.get("role"))
        yield b"\n"
        yield _text(message.get("content"))
        if calls := message.get("tool_calls"):
            yield _ENCODER.encode(calls)
        yield b"\n"
    yield from _prompts(body.prompt)


def _prompts(prompt: Any) -> Iterator[bytes]:
    for each in prompt if isinstance(prompt, list) else (prompt,):
        yield _text(each)


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if value is None:
        return b""
    if isinstance(value, list):
        return b"".join(
            _text(part.get("text")) if isinstance(part, dict) and "text" in part else _ENCODER.encode(part)
            for part in value
        )
    return _ENCODER.encode(value)


def _token_ids(prompt: Any) -> int:
    """Number of tokens of a prompt that is given as tokens; 0: it is text."""
    if not isinstance(prompt, list):
        return 0
    if prompt and all(isinstance(each, list) for each in prompt):
        return sum(map(len, prompt))
    return len(prompt) if prompt and isinstance(prompt[0], int) else 0


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _is_repeatable(body: _Body) -> bool:
    temperature = body.temperature
    is_greedy = (
        isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0
    )
    return is_greedy or (isinstance(body.seed, int) and not isinstance(body.seed, bool))
