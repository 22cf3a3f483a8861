"""Messages to prompt text by the model's own template, in a sandbox.

The template comes with the model, never with a request. A model without one refuses chat requests: an
invented format would answer, but badly. The dialect is the one transformers renders (loop controls,
`raise_exception`, `strftime_now`, JSON that keeps non-ASCII).
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from firsttoken_api import errors

# A template loops over what a request holds, at worst over pairs of it.
MAX_CHARS = 16 * 2**20
TIME_LIMIT_S = 5.0

RESERVED_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, OverflowError, RecursionError)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class ChatTemplate:
    """A compiled template. Raises jinja2.TemplateError if the source cannot be compiled."""

    def __init__(
        self, source: str, special_tokens: dict[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(source)
        self._special_tokens = special_tokens
        self._clock = clock
        self.source = source
        self.knows_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))
        """Else a request's tools would be dropped without a word."""

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        arguments: dict[str, Any],
        tools: list[dict[str, Any]] | None = None,
    ) -> str:
        """The prompt. Raises BadRequestError when the template refuses these messages."""
        taken = sorted(RESERVED_ARGUMENTS & arguments.keys())
        if taken:
            raise errors.BadRequestError(
                f"chat_template_kwargs may not set {taken[0]}", param="chat_template_kwargs"
            )
        context = self._special_tokens | arguments
        try:
            return self._join(
                self._template.generate(
                    context, messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
                )
            )
        except _REFUSALS as error:
            raise errors.BadRequestError(
                f"the model's chat template refused these messages: {error}", param="messages"
            ) from error

    def _join(self, pieces: Iterator[str]) -> str:
        """Raises jinja2.TemplateError when there is no end to them."""
        text, length, deadline_s = [], 0, self._clock() + TIME_LIMIT_S
        for piece in pieces:
            text.append(piece)
            length += len(piece)
            if length > MAX_CHARS:
                raise jinja2.TemplateError(f"they become more than {MAX_CHARS} characters")
            if self._clock() > deadline_s:
                raise jinja2.TemplateError(f"it took more than {TIME_LIMIT_S:g} s")
        return "".join(text)
