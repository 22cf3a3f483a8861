"""One streamed completion over HTTP, timed from outside; works with every OpenAI-compatible server."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import summary, workload

CLASS_HEADER = "X-Firsttoken-Class"
TIMING_HEADER = "X-Firsttoken-Timing"
ESTIMATE_HEADER = "X-Firsttoken-Estimate"
"""What a sidecar expects, in an answer to a request that asks for timing."""
CONNECT_TIMEOUT_S = 30.0
DIGEST_DIGITS = 12
_DATA = b"data: "
_DONE = b"[DONE]"


class Failed(Exception):  # noqa: N818
    """A request that did not get what it asked for; the message is counted and reported."""


@dataclass
class _Seen:
    """What has come of one answer so far."""

    first_s: float | None = None
    last_s: float = 0.0
    longest_gap_s: float = 0.0
    output_tokens: int | None = None
    cached_tokens: int | None = None
    text: str = ""
    server_timing: summary.ServerTiming | None = None
    door: summary.Door | None = None
    is_done: bool = False

    def content(self, now_s: float) -> None:
        if self.first_s is None:
            self.first_s = now_s
        else:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_s)
        self.last_s = now_s


class Client:
    """Requests to one server. Times are seconds from `started_at_s`.

    With `wants_timing` the server says what it measured itself; an answer without that is an error. With
    `notes_door` records hold how a sidecar let the request in or turned it away. Cached prompts are found
    only under the same `salt`; it may be changed between requests.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        model: str,
        *,
        wants_timing: bool = False,
        notes_door: bool = False,
    ) -> None:
        self._session = session
        self._url = url
        self._model = model
        self._wants_timing = wants_timing
        self._notes_door = notes_door
        self.salt = ""
        self.started_at_s = time.perf_counter()

    def now_s(self) -> float:
        return time.perf_counter() - self.started_at_s

    async def ask(
        self,
        request: workload.Request,
        start_s: float | None = None,
        on_content: Callable[[float], None] = lambda now_s: None,
    ) -> summary.Record:
        """Never raises for what the server does: an error is part of the record. `on_content` is told the
        time of each piece of text."""
        began_s = self.now_s() if start_s is None else start_s
        seen = _Seen()
        error = ""
        try:
            await self._stream(request, seen, on_content)
            _check(request, seen)
            if self._wants_timing and seen.server_timing is None:
                raise Failed("the answer had no timing")
        except Failed as failure:
            error = str(failure)
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        tokens = seen.output_tokens or 0
        has_pace = seen.first_s is not None and tokens > 1
        return summary.Record(
            group=request.group,
            prompt_tokens=request.prompt_tokens,
            output_tokens=tokens,
            start_s=began_s,
            end_s=self.now_s(),
            ttft_s=None if seen.first_s is None else seen.first_s - began_s,
            tpot_s=(seen.last_s - seen.first_s) / (tokens - 1) if has_pace and seen.first_s else None,
            longest_gap_s=seen.longest_gap_s,
            error=error,
            server_timing=seen.server_timing,
            cached_tokens=seen.cached_tokens,
            text_digest=hashlib.sha256(seen.text.encode()).hexdigest()[:DIGEST_DIGITS],
            door=seen.door,
        )

    async def _stream(
        self, request: workload.Request, seen: _Seen, on_content: Callable[[float], None]
    ) -> None:
        headers = {CLASS_HEADER: request.request_class} if request.request_class else {}
        if self._wants_timing:
            headers[TIMING_HEADER] = "true"
        sent_s = self.now_s()
        async with self._session.post(
            f"{self._url}/v1/completions", json=body(self._model, request, self.salt), headers=headers
        ) as response:
            if self._notes_door:
                seen.door = _door(response, self.now_s() - sent_s)
            if response.status != 200:
                raise Failed(f"HTTP {response.status}: {(await response.text())[:200]}")
            async for line in response.content:
                if line.startswith(_DATA):
                    self._take(line[len(_DATA) :].strip(), seen, on_content)

    def _take(self, data: bytes, seen: _Seen, on_content: Callable[[float], None]) -> None:
        now_s = self.now_s()
        if data == _DONE:
            seen.is_done = True
            return
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise Failed(f"an event is not JSON: {data[:80]!r}") from error
        if "error" in chunk:
            raise Failed(f"error event: {chunk['error'].get('message', chunk['error'])}")
        for choice in chunk.get("choices", ()):
            # An answer without any text has its first token when it ends.
            if choice.get("text") or choice.get("finish_reason"):
                seen.content(now_s)
            if text := choice.get("text"):
                seen.text += text
                on_content(now_s)
        if usage := chunk.get("usage"):
            seen.output_tokens = int(usage["completion_tokens"])
            details = usage.get("prompt_tokens_details") or {}
            seen.cached_tokens = details.get("cached_tokens")
        if timing := chunk.get("timing"):
            seen.server_timing = _timing(timing)


def body(model: str, request: workload.Request, salt: str = "") -> dict[str, Any]:
    """Greedy, past the end-of-text token, so that the length is what was asked for. What only we know is
    left out where it says nothing."""
    ours: dict[str, Any] = {"cache_salt": salt} if salt else {}
    if request.shared_prefix_tokens:
        ours["shared_prefix_tokens"] = request.shared_prefix_tokens
    return ours | {
        "model": model,
        "prompt": request.text or list(request.prompt_token_ids),
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _door(response: aiohttp.ClientResponse, answered_s: float) -> summary.Door:
    retry_after = response.headers.get("Retry-After", "")
    said = response.headers.get(ESTIMATE_HEADER)
    try:
        estimate = json.loads(said) if said else {}
        return summary.Door(
            status=response.status,
            answered_s=answered_s,
            retry_after_s=float(retry_after) if retry_after else None,
            **{name: estimate.get(name) for name in ("ttft_ms", "p90_ms", "limit_ms")},
        )
    except (AttributeError, ValueError) as error:
        raise Failed(f"a door that cannot be read: {retry_after[:40]!r}, {str(said)[:80]}") from error


def _timing(said: Any) -> summary.ServerTiming:
    try:
        stages_ms = {str(name): float(value) for name, value in said["stages_ms"].items()}
        return summary.ServerTiming(float(said["ttft_ms"]), stages_ms)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Failed(f"a timing that cannot be read: {str(said)[:80]}") from error


def _check(request: workload.Request, seen: _Seen) -> None:
    if not seen.is_done:
        raise Failed("the stream ended without [DONE]")
    if seen.output_tokens is None or seen.first_s is None:
        raise Failed("the stream had no content or no usage")
    if request.output_tokens is not None and seen.output_tokens != request.output_tokens:
        raise Failed(f"{request.output_tokens} tokens were asked for and {seen.output_tokens} came")


def session() -> aiohttp.ClientSession:
    """Without a limit on connections or on the length of an answer; the load has a time limit of its own."""
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


async def model_name(http: aiohttp.ClientSession, url: str) -> str:
    """The first model that the server has. Raises UserError."""
    try:
        async with http.get(f"{url}/v1/models") as response:
            cards = (await response.json(content_type=None))["data"]
            return str(cards[0]["id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"no OpenAI-compatible server answers at {url} ({error or 'timeout'})") from error


async def tokens_of(http: aiohttp.ClientSession, url: str, text: str) -> list[int]:
    """As the server's tokenizer has them. Raises UserError."""
    body = {"prompt": text, "add_special_tokens": False}
    try:
        async with http.post(f"{url}/tokenize", json=body) as response:
            return [int(token_id) for token_id in (await response.json(content_type=None))["tokens"]]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the server at {url} does not tokenize ({error!r})") from error
