"""A conversation in the terminal with any OpenAI-compatible server.

Answers appear as they are generated. `/clear` forgets the conversation, `/exit` or end of input leaves,
Ctrl-C stops the answer that is being written.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from rich.console import Console
from rich.markup import escape

from firsttoken_api.errors import UserError

EVENT = b"data: "
DONE = b"[DONE]"
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    url: str
    model: str = ""
    system: str = ""
    temperature: float | None = None
    max_tokens: int | None = None

    def body(self, model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body

    def beginning(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}] if self.system else []


async def talk(wish: Wish) -> None:
    """Ask and answer until the user leaves. Raises UserError when the server cannot be used."""
    # asyncio's own handler would only cancel this task, and leave a waiting input() waiting.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(highlight=False)
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        model = await _model(session, wish)
        if sys.stdin.isatty():
            console.print(f"[bold]{escape(model)}[/] at {wish.url}. /clear forgets, /exit leaves.")
        messages = wish.beginning()
        while (question := _ask(console)) is not None:
            if question == "/clear":
                messages = wish.beginning()
            elif question:
                messages.append({"role": "user", "content": question})
                answer = await _answer(session, wish, model, messages, console)
                messages.append({"role": "assistant", "content": answer})


def _ask(console: Console) -> str | None:
    """The next line; None when the user leaves. Blocks the loop, on which nothing else runs."""
    try:
        line = console.input("[bold cyan]> [/]") if sys.stdin.isatty() else input()
    except (EOFError, KeyboardInterrupt):
        return None
    line = line.strip()
    return None if line in ("/exit", "/quit") else line


async def _model(session: aiohttp.ClientSession, wish: Wish) -> str:
    """The model asked for, or the first that the server has."""
    try:
        async with session.get(f"{wish.url}/v1/models") as response:
            body = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UserError(f"URL: no server answers at {wish.url} ({error or 'timeout'})") from error
    if response.status != 200:
        raise UserError(f"URL: {wish.url} answered {response.status}: {_error_text(body)}")
    names = [card["id"] for card in body.get("data", [])]
    if wish.model and wish.model not in names:
        raise UserError(f"--model: {wish.model!r} is not one of {', '.join(names)}")
    if not names:
        raise UserError(f"URL: {wish.url} serves no model")
    return wish.model or str(names[0])


async def _answer(
    session: aiohttp.ClientSession, wish: Wish, model: str, messages: list[dict[str, str]], console: Console
) -> str:
    """Print one answer as it comes; returns as much as came before its end or Ctrl-C."""
    pieces: list[str] = []

    async def show() -> None:
        async for text in deltas(session, wish, model, messages):
            pieces.append(text)
            console.out(text, end="", highlight=False)

    loop = asyncio.get_running_loop()
    work = asyncio.create_task(show())
    loop.add_signal_handler(signal.SIGINT, work.cancel)
    try:
        await asyncio.wait([work])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    console.out("" if not work.cancelled() else " [stopped]")
    if not work.cancelled():
        work.result()
    return "".join(pieces)


async def deltas(
    session: aiohttp.ClientSession, wish: Wish, model: str, messages: list[dict[str, str]]
) -> AsyncIterator[str]:
    """The pieces of one answer. Raises UserError with the server's own words when it fails."""
    try:
        async for text in _deltas(session, wish, model, messages):
            yield text
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UserError(f"the answer broke off: {error or 'timeout'}") from error


async def _deltas(
    session: aiohttp.ClientSession, wish: Wish, model: str, messages: list[dict[str, str]]
) -> AsyncIterator[str]:
    url = f"{wish.url}/v1/chat/completions"
    async with session.post(url, json=wish.body(model, messages)) as response:
        if response.status != 200:
            body = await response.json(content_type=None)
            raise UserError(f"the server answered {response.status}: {_error_text(body)}")
        async for line in response.content:
            if not line.startswith(EVENT):
                continue  # an empty line, or a comment that keeps the connection open
            payload = line.removeprefix(EVENT).strip()
            if payload == DONE:
                return
            event = json.loads(payload)
            if "error" in event:
                raise UserError(f"the answer broke off: {_error_text(event)}")
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""


def _error_text(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", error)) if isinstance(error, dict) else str(body)
