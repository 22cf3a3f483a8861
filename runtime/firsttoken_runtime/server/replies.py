"""The bodies of OpenAI's answers: whole ones, and the chunks of a stream.

All chunks of a stream share id and time. The text never shares a chunk with the finish reason, which is
`null` until the end; the usage chunk has an empty list of choices. Clients break on anything else.
"""

import time
import uuid
from typing import Any

from firsttoken_runtime.server.answer import Answer

Json = dict[str, Any]


def usage(prompt_tokens: int, answer: Answer) -> Json:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


class Reply:
    """One answer in one of the two formats."""

    prefix = ""
    whole_object = ""
    chunk_object = ""

    def __init__(self, model: str) -> None:
        self._head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def opening(self) -> list[Json]:
        """Chunks before the first text."""
        return []

    def text(self, text: str) -> Json:
        return self._chunk([self._choice(text, None, None)])

    def finish(self, answer: Answer) -> Json:
        return self._chunk([self._choice("", answer.finish_reason, answer.stop_reason)])

    def usage(self, prompt_tokens: int, answer: Answer) -> Json:
        return self._chunk([]) | {"usage": usage(prompt_tokens, answer)}

    def whole(self, text: str, prompt_tokens: int, answer: Answer) -> Json:
        return self._head | {
            "object": self.whole_object,
            "choices": [
                self._whole_choice(text)
                | {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason}
            ],
            "usage": usage(prompt_tokens, answer),
        }

    def _chunk(self, choices: list[Json]) -> Json:
        return self._head | {"object": self.chunk_object, "choices": choices}

    def _choice(self, text: str, finish_reason: str | None, stop_reason: str | int | None) -> Json:
        raise NotImplementedError

    def _whole_choice(self, text: str) -> Json:
        raise NotImplementedError


class ChatReply(Reply):
    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> list[Json]:
        return [self._chunk([self._delta({"role": "assistant", "content": ""})])]

    def _choice(self, text: str, finish_reason: str | None, stop_reason: str | int | None) -> Json:
        if finish_reason is None:
            return self._delta({"content": text})
        return self._delta({}) | {"finish_reason": finish_reason, "stop_reason": stop_reason}

    def _delta(self, delta: Json) -> Json:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}

    def _whole_choice(self, text: str) -> Json:
        return {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": None}


class CompletionReply(Reply):
    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, text: str, finish_reason: str | None, stop_reason: str | int | None) -> Json:
        choice = self._whole_choice(text) | {"finish_reason": finish_reason}
        return choice if finish_reason is None else choice | {"stop_reason": stop_reason}

    def _whole_choice(self, text: str) -> Json:
        return {"index": 0, "text": text, "logprobs": None}
