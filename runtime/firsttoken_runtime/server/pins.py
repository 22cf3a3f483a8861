"""Prompts that stay in the cache: `--cache-pins FILE`, a JSON list of what many requests begin with.

An entry is a text, a list of token ids, a list of messages, or an object with `prompt` or `messages` and what
/tokenize takes beside it (`tools`, `chat_template_kwargs`, `add_special_tokens`). Messages are pinned as they
begin a chat, without the head of an answer. Pinned KV is everybody's: requests of every tenant and with every
`cache_salt` find it, since that it is there tells nothing of what others asked. The engine keeps what it has
computed, so each prompt is computed once, and again when a switch of flags has made that worthless.
"""

import asyncio
import logging
import time
from pathlib import Path

import msgspec

from firsttoken_api import errors
from firsttoken_runtime import core
from firsttoken_runtime.server import prompt, sampling
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.engine_client import EngineClient
from firsttoken_runtime.server.openai_models import (
    TokenizeChatRequest,
    TokenizePromptRequest,
    UnknownNames,
    parse,
)
from firsttoken_runtime.server.openai_models.base import LARGEST_INT
from firsttoken_runtime.server.openai_models.messages import TextMessage
from firsttoken_runtime.server.sequence import Wanted
from firsttoken_runtime.server.tokenizer import TextModel

log = logging.getLogger(__name__)

MAX_PINS = 64
MAX_FILE_BYTES = 4 * 2**20
LOOK_EVERY_S = 1.0
RETRY_EVERY_S = 60.0
"""For what failed though it can be served, as in a step for which there was no memory."""

Entry = TokenizeChatRequest | TokenizePromptRequest | list[int]


class PinsError(ValueError):
    """The file is wrong; the message names the entry."""


class Pins:
    """The pinned prompts of one server; none until `use`."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self._computed_under: tuple[str, int] | None = None
        """Lineage and generation of flags: what is still cached then costs next to nothing to compute."""

    def use(self, prompts: list[list[int]], client: EngineClient) -> None:
        """Tell the engine. Raises UnavailableError."""
        self.prompts = prompts
        client.pin(prompts)

    async def keep_computing(self, client: EngineClient) -> None:
        """Look again and again whether they are computed under what is in force, until cancelled or the
        engine is gone."""
        left: list[int] = []
        next_try_s = 0.0
        while client.life.is_ready:
            stats = client.stats
            in_force = None if stats is None else (stats.lineage, client.flags.generation)
            if in_force != self._computed_under:
                self._computed_under, left, next_try_s = in_force, list(range(len(self.prompts))), 0.0
            if left and time.monotonic() >= next_try_s:
                left = [index for index in left if not await self._is_settled(index, client)]
                next_try_s = time.monotonic() + RETRY_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)

    async def _is_settled(self, index: int, client: EngineClient) -> bool:
        """Compute one; False if that failed and may succeed another time."""
        ids = self.prompts[index]
        wanted = Wanted(
            ids,
            core.SamplingParams(max_tokens=1, temperature=0.0),
            priority=LARGEST_INT,  # after whoever waits in the default class
            expected_output_tokens=1,
            shared_prefix_tokens=len(ids),
        )
        try:
            with client.group([wanted], time.monotonic()) as group:
                (sequence,) = group.sequences
                while not sequence.has_finished:
                    await group.wait()
                    sequence.take()
        except errors.ApiError as error:
            log.warning("the pinned prompt of entry %d is not computed: %s", index, error.message)
            return isinstance(error, errors.BadRequestError)
        return True


class _Strict(UnknownNames):
    """In a file of the server's owner a wrong name is a mistake."""

    def warn(self, name: str) -> None:
        raise errors.BadRequestError(f"{name[:64]} is not known here")


def read(path: Path) -> list[Entry]:
    """The entries of a file. Raises PinsError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PinsError(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise PinsError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
    try:
        entries = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PinsError(f"{path} is not a JSON list: {error}") from error
    if len(entries) > MAX_PINS:
        raise PinsError(f"{path} has {len(entries)} entries; at most {MAX_PINS} prompts are pinned")
    return [_entry(bytes(raw), f"{path}: entry {index}") for index, raw in enumerate(entries)]


def _entry(raw: bytes, where: str) -> Entry:
    found = msgspec.json.decode(raw)
    if isinstance(found, str):
        found = {"prompt": found}
    elif isinstance(found, list) and found and all(type(one) is int and one >= 0 for one in found):
        return found
    elif isinstance(found, list):
        found = {"messages": found}
    elif not isinstance(found, dict):
        raise PinsError(f"{where} is neither a text, a list nor an object")
    kind: type[TokenizeChatRequest | TokenizePromptRequest] = (
        TokenizeChatRequest if "messages" in found else TokenizePromptRequest
    )
    try:
        return parse(kind, msgspec.json.encode(found), _Strict())
    except errors.BadRequestError as error:
        raise PinsError(f"{where}: {error.message}") from error


def tokenize(
    entries: list[Entry],
    text_model: TextModel,
    template: ChatTemplate | None,
    *,
    vocabulary_size: int,
    capacity: int,
) -> list[list[int]]:
    """Token ids of each entry. Slow for long texts. Raises PinsError."""
    return [
        _ids(entry, text_model, template, vocabulary_size, capacity, f"entry {index}")
        for index, entry in enumerate(entries)
    ]


def _ids(
    entry: Entry,
    text_model: TextModel,
    template: ChatTemplate | None,
    vocabulary_size: int,
    capacity: int,
    where: str,
) -> list[int]:
    try:
        one = _prompt(entry, text_model, template, capacity)
        sampling.check_prompt(one, vocabulary_size, capacity)
    except errors.BadRequestError as error:
        raise PinsError(f"{where}: {error.message}") from error
    return one.ids


def _prompt(
    entry: Entry, text_model: TextModel, template: ChatTemplate | None, capacity: int
) -> prompt.Prompt:
    if isinstance(entry, list):
        return prompt.Prompt(entry, "prompt")
    if isinstance(entry, TokenizePromptRequest):
        return prompt.encode(
            entry.prompt,
            text_model,
            capacity,
            param="prompt",
            add_special_tokens=entry.add_special_tokens,
        )
    if any(isinstance(one, TextMessage) and one.role == "user" for one in entry.messages):
        return prompt.chat(
            entry.model_copy(update={"add_generation_prompt": False}), text_model, template, capacity
        )
    # As it begins a chat: some templates write nothing without a user's message.
    begun = [*entry.messages, TextMessage(role="user", content="a")]
    one = prompt.chat(entry.model_copy(update={"messages": begun}), text_model, template, capacity)
    return prompt.Prompt(one.ids[: one.system_tokens], "messages")
