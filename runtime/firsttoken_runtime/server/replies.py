"""The bodies of OpenAI's answers: whole ones, and the chunks of a stream.

All chunks of a stream share id and time. Text never shares a chunk with the finish reason, which is `null`
until the end; the usage chunk has an empty list of choices. Clients break on anything else.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from firsttoken_runtime.server import wire
from firsttoken_runtime.server.choice import Choice, Delta, Json

AFTER_PIECE = b"]}\n\n"

_encode = msgspec.json.Encoder().encode


def usage(choices: Sequence[Choice]) -> wire.Usage:
    """A prompt counts once, however many answers it has."""
    answers_of: dict[int, list[Choice]] = {}
    for choice in choices:
        answers_of.setdefault(id(choice.prompt), []).append(choice)
    prompt_tokens = sum(len(answers[0].prompt.ids) for answers in answers_of.values())
    completion_tokens = sum(choice.answer.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(map(_cached_tokens, answers_of.values()))},
    }


def _cached_tokens(answers: list[Choice]) -> int:
    """Of one prompt: those that none of its answers computed. The one that comes first may compute them for
    the others."""
    return min((one.answer.cached_tokens for one in answers if one.answer.completion_tokens), default=0)


class Reply:
    """One answer in one of the two formats. With `has_usage` every chunk says `usage`, mostly null."""

    prefix = ""
    whole_object = ""
    chunk_object = ""

    def __init__(self, model: str, *, has_usage: bool = False) -> None:
        self._head: Json = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self._chunk_head = self._head | {"object": self.chunk_object}
        if has_usage:
            self._chunk_head["usage"] = None
        self._before_piece = b"data: " + _encode(self._chunk_head)[:-1] + b',"choices":['

    def opening(self, index: int) -> list[Json]:
        """Chunks before the first piece of an answer."""
        return []

    def delta(self, index: int, delta: Delta) -> Json:
        """The chunk of one piece."""
        return self._chunk(self._piece(index, delta))

    def delta_event(self, index: int, delta: Delta) -> bytes:
        """The same as it is sent. There is one for every token, and its head never changes."""
        return self._before_piece + _encode(self._piece(index, delta)) + AFTER_PIECE

    def finish(self, choice: Choice) -> Json:
        raise NotImplementedError

    def usage(self, choices: Sequence[Choice]) -> Json:
        return self._chunk() | {"usage": usage(choices)}

    def whole(self, choices: list[Choice], deltas: list[list[Delta]]) -> Json:
        """`deltas[i]` are all of `choices[i]`."""
        return self._head | {
            "object": self.whole_object,
            "choices": [
                self._whole_choice(choice, own)
                | {
                    "index": choice.index,
                    "logprobs": joined([delta.logprobs for delta in own if delta.logprobs is not None]),
                    "finish_reason": choice.finish_reason,
                    "stop_reason": choice.answer.stop_reason,
                }
                for choice, own in zip(choices, deltas, strict=True)
            ],
            "usage": usage(choices),
        }

    def _chunk(self, *choices: Json) -> Json:
        return {**self._chunk_head, "choices": list(choices)}

    def _piece(self, index: int, delta: Delta) -> Json:
        raise NotImplementedError

    def _whole_choice(self, choice: Choice, deltas: list[Delta]) -> Json:
        raise NotImplementedError


class ChatReply(Reply):
    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> list[Json]:
        return [self.delta(index, Delta({"role": "assistant", "content": ""}))]

    def _piece(self, index: int, delta: Delta) -> Json:
        return {"index": index, "delta": delta.content, "logprobs": delta.logprobs, "finish_reason": None}

    def finish(self, choice: Choice) -> Json:
        return self._chunk(
            {
                "index": choice.index,
                "delta": {},
                "logprobs": None,
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.answer.stop_reason,
            }
        )

    def _whole_choice(self, choice: Choice, deltas: list[Delta]) -> Json:
        return {"message": message([delta.content for delta in deltas])}


class CompletionReply(Reply):
    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def _piece(self, index: int, delta: Delta) -> Json:
        return {
            "index": index,
            "text": delta.content["text"],
            "logprobs": delta.logprobs,
            "finish_reason": None,
        }

    def finish(self, choice: Choice) -> Json:
        return self._chunk(
            {
                "index": choice.index,
                "text": "",
                "logprobs": None,
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.answer.stop_reason,
            }
        )

    def _whole_choice(self, choice: Choice, deltas: list[Delta]) -> Json:
        return {"text": "".join(delta.content["text"] for delta in deltas)}


def message(pieces: list[Json]) -> wire.ChatMessage:
    """The chat message that deltas add up to."""
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: dict[int, wire.ToolCall] = {}
    for piece in pieces:
        for name in texts.keys() & piece.keys():
            texts[name].append(piece[name])
        for part in piece.get("tool_calls", ()):
            if (index := part["index"]) not in calls:
                calls[index] = {
                    "id": part["id"],
                    "type": "function",
                    "function": {"name": part["function"]["name"], "arguments": ""},
                }
            calls[index]["function"]["arguments"] += part["function"].get("arguments", "")
    content, reasoning = ("".join(texts[name]) for name in ("content", "reasoning_content"))
    whole: wire.ChatMessage = {"role": "assistant", "content": content if content or not calls else None}
    if reasoning:
        whole["reasoning_content"] = reasoning
    if calls:
        whole["tool_calls"] = list(calls.values())
    return whole


def joined(parts: list[dict[str, Any]]) -> Json | None:
    """The logprobs of all deltas: their lists one after the other."""
    if not parts:
        return None
    whole = {
        name: [item for part in parts for item in part[name]] if isinstance(value, list) else value
        for name, value in parts[0].items()
    }
    return cast(Json, whole)
