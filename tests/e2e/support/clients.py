"""The client our users have, the official `openai` package, and a steady load made of it."""

import asyncio
import itertools
import time
from dataclasses import dataclass, field

import openai

BASE_URL = "http://127.0.0.1:8080/v1"
MODEL = "chat"
NO_KEY = "unused"


@dataclass(frozen=True)
class Target:
    """The service that a load asks."""

    model: str = MODEL
    base_url: str = BASE_URL
    key: str = field(default=NO_KEY, repr=False)


_first_numbers = itertools.count(1)
"""Each long stream is a question of its own: equal ones may be answered by one computation."""

CHAT = Target()
"""The example service of `make up`."""


def client(base_url: str = BASE_URL, timeout_s: float = 60, key: str = NO_KEY) -> openai.OpenAI:
    # No retries: a scenario that promises zero errors must see every one.
    return openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=timeout_s)


def async_client(target: Target = CHAT, timeout_s: float = 300) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=target.base_url, api_key=target.key, max_retries=0, timeout=timeout_s)


@dataclass
class Outcome:
    """What a load saw."""

    finished: int = 0
    errors: list[str] = field(default_factory=list)
    longest_s: float = 0.0


@dataclass
class Stream:
    """What one long stream saw."""

    tokens: int = 0
    seconds: float = 0.0
    finish_reason: str = ""
    error: str = ""


async def long_stream(max_tokens: int, target: Target = CHAT) -> Stream:
    """One stream of exactly `max_tokens` tokens, EOS ignored, on a connection of its own.

    A pooled connection would tie all streams to the replica that the first one reached.
    """
    async with async_client(target) as llm:
        return await _stream(llm, max_tokens, target.model)


async def _stream(llm: openai.AsyncOpenAI, max_tokens: int, model: str) -> Stream:
    seen = Stream()
    begin = time.monotonic()
    try:
        stream = await llm.chat.completions.create(
            model=model,
            messages=[
                {"role": "user", "content": f"Count upwards from {next(_first_numbers)}, one number a line."}
            ],
            max_tokens=max_tokens,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].finish_reason:
                seen.finish_reason = chunk.choices[0].finish_reason
            if chunk.usage:
                seen.tokens = chunk.usage.completion_tokens
    except openai.OpenAIError as error:
        seen.error = repr(error)
    seen.seconds = time.monotonic() - begin
    return seen


async def short_request_s(target: Target = CHAT) -> float:
    """What one short request takes alone; the quicker of two, so that no first time is measured."""
    async with async_client(target) as llm:
        times = []
        for _ in range(2):
            begin = time.monotonic()
            await llm.completions.create(model=target.model, prompt="The number 7 is", max_tokens=2)
            times.append(time.monotonic() - begin)
        return min(times)


MOST_IN_FLIGHT = 50
"""An open-loop load that an engine cannot carry is ended, and said to be, instead of growing for ever."""


async def short_requests(per_second: float, until: asyncio.Event, target: Target = CHAT) -> Outcome:
    """An open-loop load of short requests (fewer than 16 prompt tokens, 2 tokens out) until the event is set.

    Waits for every request that was sent, so that none is lost from the count.
    """
    async with async_client(target) as llm:
        return await _load(llm, per_second, until, target.model)


async def _load(llm: openai.AsyncOpenAI, per_second: float, until: asyncio.Event, model: str) -> Outcome:
    in_flight = 0
    outcome = Outcome()

    async def one(number: int) -> None:
        nonlocal in_flight
        begin = time.monotonic()
        in_flight += 1
        try:
            await llm.completions.create(model=model, prompt=f"The number {number % 10} is", max_tokens=2)
            outcome.finished += 1
        except openai.OpenAIError as error:
            outcome.errors.append(f"{time.monotonic() - begin:.2f} s: {error!r}")
        in_flight -= 1
        outcome.longest_s = max(outcome.longest_s, time.monotonic() - begin)

    running: list[asyncio.Task[None]] = []
    begin = time.monotonic()
    while not until.is_set():
        if in_flight > MOST_IN_FLIGHT:
            outcome.errors.append(f"the engine fell behind: {in_flight} short requests in flight")
            break
        running.append(asyncio.create_task(one(len(running))))
        next_s = begin + len(running) / per_second
        try:
            await asyncio.wait_for(until.wait(), timeout=max(0.0, next_s - time.monotonic()))
        except TimeoutError:
            continue
    await asyncio.gather(*running)
    return outcome
