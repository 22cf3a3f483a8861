"""One answer of the paced engine: words instead of a model's text, in the form of our server's answers."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from firsttoken_runtime.bench import paced_loop

MODEL = "paced"
STAMPS_HEADER = "X-Firsttoken-Stamps"
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Answer:
    """What one request gets."""

    def __init__(
        self, generation: paced_loop.Generation, is_chat: bool, *, has_timing: bool, has_stamps: bool
    ) -> None:
        self._generation = generation
        self._sequence = generation.sequence
        self._is_chat = is_chat
        self._has_timing = has_timing
        self._has_stamps = has_stamps

    async def stream(self, request: web.Request, has_usage: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers=EVENT_STREAM)
        timing: dict[str, Any] = {}
        async for index, is_last in self._tokens():
            event = _event(self._chunk(index, is_last))
            if index == 0:
                await response.prepare(request)
                timing = self._timing(time.monotonic())
                if self._has_stamps:
                    event += _comment("firsttoken-first", self._first(timing))
            await response.write(event)
        last: dict[str, Any] = {"usage": self._usage()} if has_usage else {}
        if self._has_timing:
            last["timing"] = timing
        if last:
            await response.write(_event({"id": "1", "choices": [], **last}))
        if self._has_stamps:
            await response.write(_comment("firsttoken-end", self._end()))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def whole(self) -> web.Response:
        timing: dict[str, Any] = {}
        text = ""
        async for index, _ in self._tokens():
            timing = timing or self._timing(time.monotonic())
            text += f"w{index} "
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self._is_chat else {"text": text}
        body = {"id": "1", "choices": [choice], "usage": self._usage()}
        if self._has_timing:
            body["timing"] = timing
        headers = {}
        if self._has_stamps:
            headers[STAMPS_HEADER] = json.dumps({**self._first(timing), **self._end()})
        return web.json_response(body, headers=headers)

    async def _tokens(self) -> AsyncIterator[tuple[int, bool]]:
        index, is_last = 0, False
        while not is_last:
            is_last = await self._generation.tokens.get()
            yield index, is_last
            index += 1

    def _chunk(self, index: int, is_last: bool) -> dict[str, Any]:
        text = f"w{index} "
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if is_last else None}
        choice |= {"delta": {"content": text}} if self._is_chat else {"text": text}
        return {"id": "1", "model": MODEL, "choices": [choice]}

    def _timing(self, now: float) -> dict[str, Any]:
        """As our server says it: stages in ms that add up to the TTFT."""
        one = self._sequence
        assert one.scheduled_s is not None
        assert one.prefilled_s is not None
        stages_s = {
            "tokenize": 0.0,
            "queue": one.scheduled_s - one.arrival_s,
            "tier_load": 0.0,
            "prefill": one.prefilled_s - one.scheduled_s,
            "first_sample": 0.0,
            "write": now - one.prefilled_s,
        }
        return {
            "ttft_ms": (now - one.arrival_s) * 1e3,
            "stages_ms": {name: span_s * 1e3 for name, span_s in stages_s.items()},
        }

    def _first(self, timing: Mapping[str, Any]) -> dict[str, Any]:
        one = self._sequence
        said = {"prompt_tokens": one.prompt_tokens, "cached_tokens": one.cached_tokens, "choices": 1}
        return {**said, **timing}

    def _end(self) -> dict[str, Any]:
        one = self._sequence
        return {"completion_tokens": one.emitted_tokens, "cached_tokens": one.cached_tokens}

    def _usage(self) -> dict[str, Any]:
        one = self._sequence
        return {
            "prompt_tokens": one.prompt_tokens,
            "completion_tokens": one.emitted_tokens,
            "total_tokens": one.prompt_tokens + one.emitted_tokens,
            "prompt_tokens_details": {"cached_tokens": one.cached_tokens},
        }


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _comment(name: str, body: Mapping[str, Any]) -> bytes:
    return f": {name} ".encode() + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"
