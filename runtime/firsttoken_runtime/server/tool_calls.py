"""Calls of tools in the text of a model, while it is written.

Which of the formats a model uses is read from its chat template. A call is reported when it is certain (its
name is known and its arguments have begun); from there the arguments stream as they are written. What
turns out not to be a call is content, nothing is lost, and text inside a call is never content.
"""

from enum import Enum

from firsttoken_runtime.server.call_reader import CallReader, MalformedError
from firsttoken_runtime.server.marker import held_back
from firsttoken_runtime.server.parts import Arguments, CallStart, Content, Part, joined

_SPACE = " \t\r\n"


class Format(Enum):
    """How models write calls."""

    HERMES = "hermes"
    """`<tool_call>{"name": …, "arguments": …}</tool_call>`, anywhere, several: Hermes, Qwen, SmolLM3."""
    LLAMA = "llama"
    """`{"name": …, "parameters": …}` as the whole answer, several with `;`, `<|python_tag|>` allowed."""
    MISTRAL = "mistral"
    """`[TOOL_CALLS][{"name": …, "arguments": …}, …]`."""


OPEN = {Format.HERMES: "<tool_call>", Format.LLAMA: "<|python_tag|>", Format.MISTRAL: "[TOOL_CALLS]"}
CLOSE = {Format.HERMES: "</tool_call>", Format.LLAMA: "", Format.MISTRAL: "]"}

# Other formats that use one of the markers above.
_FOREIGN = ("<function=", "<arg_key>", "[ARGS]")


def format_of(template: str) -> Format | None:
    """The format that a chat template teaches its model; None when it is not one of ours."""
    if any(marker in template for marker in _FOREIGN):
        return None
    if OPEN[Format.HERMES] in template:
        return Format.HERMES
    if OPEN[Format.MISTRAL] in template:
        return Format.MISTRAL
    if OPEN[Format.LLAMA] in template or '"parameters": dictionary of argument name' in template:
        return Format.LLAMA
    return None


class ToolCallParser:
    """`feed` pieces of text, then `flush`. `names`: the tools of the request; where a call has no marker,
    only these names make one."""

    def __init__(self, tool_format: Format, names: frozenset[str] = frozenset()) -> None:
        self._format = tool_format
        self._names = names
        self._open, self._close = OPEN[tool_format], CLOSE[tool_format]
        self._state = "text" if tool_format is not Format.LLAMA else "start"
        self._held = ""
        """Text that may still be, or lead to, a marker or a call."""
        self._gap = ""
        """Space after a call: shown before text, not before another call."""
        self._reader: CallReader | None = None
        self._must_open_list = False
        self._num_calls = 0
        self._parts: list[Part] = []

    @property
    def has_called_tools(self) -> bool:
        return self._num_calls > 0

    def feed(self, text: str) -> list[Part]:
        for char in text:
            self._take(char)
        return self._ready()

    def flush(self) -> list[Part]:
        """What is still held, at the end. An unfinished call that was reported stays as far as it came."""
        if self._reader is not None:
            self._give_up(self._reader)
        if not (self._state == "between" and not self._held.strip()):
            self._content(self._held)
        self._held = ""
        return self._ready()

    def _ready(self) -> list[Part]:
        parts, self._parts = list(joined(self._parts)), []
        return parts

    def _content(self, text: str) -> None:
        if text:
            self._parts.append(Content(self._gap + text))
            self._gap = ""

    def _take(self, char: str) -> None:
        match self._state:
            case "text":
                self._text(char)
            case "start":
                self._start(char)
            case "call":
                self._call(char)
            case "broken":
                self._broken(char)
            case "between":
                self._between(char)
            case "closed" if char in _SPACE:
                self._gap += char
            case "closed":
                self._state = "text"
                self._text(char)
            case _:
                self._content(char)

    def _text(self, char: str) -> None:
        self._held += char
        if self._held.endswith(self._open):
            self._content(self._held[: -len(self._open)])
            self._begin(self._open)
            return
        keep = held_back(self._held, (self._open,))
        self._content(self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]

    def _start(self, char: str) -> None:
        """The first characters of an answer that is either all calls or none."""
        held = self._held + char
        begin = held.lstrip()
        if begin == "{":
            self._begin(held[:-1])
            self._take(char)
        elif begin == self._open:
            self._begin(held)
        elif self._open.startswith(begin):
            self._held = held
        else:
            self._rest(held)

    def _rest(self, text: str) -> None:
        """All that follows is content."""
        self._state, self._held = "rest", ""
        self._content(text)

    def _begin(self, before: str) -> None:
        """A call may begin; `before` is shown if it does not."""
        self._state, self._held, self._reader = "call", before, None
        self._must_open_list = self._format is Format.MISTRAL and before.endswith(self._open)

    def _call(self, char: str) -> None:
        if self._reader is None:
            if char in _SPACE:
                self._held += char
                return
            if self._must_open_list:
                self._must_open_list = False
                if char == "[":
                    self._held += char
                    return
            self._reader = CallReader()
        reader = self._reader
        was_certain = reader.name is not None
        try:
            piece = reader.feed(char)
        except MalformedError:
            self._give_up(reader)
            if was_certain:
                self._state = "broken"
            self._take(char)
            return
        if reader.name is not None and not was_certain:
            if self._format is Format.LLAMA and not self._is_call(reader.name):
                self._reader = None
                self._rest(self._held + reader.raw)
                return
            self._held = self._gap = ""
            self._parts.append(CallStart(self._num_calls, reader.name))
            self._num_calls += 1
        if piece:
            self._parts.append(Arguments(self._num_calls - 1, piece))
        if reader.is_done:
            self._reader, self._state, self._held = None, "between", ""

    def _is_call(self, name: str) -> bool:
        return name in self._names or self._held.lstrip().startswith(self._open)

    def _give_up(self, reader: CallReader) -> None:
        """Not a call: it was text. A call that was reported already cannot be taken back."""
        self._reader = None
        if reader.name is not None:
            self._state = "text" if self._format is not Format.LLAMA else "rest"
            return
        held, self._held = self._held + reader.raw, ""
        self._content(held)
        self._state = "text" if self._format is not Format.LLAMA else "rest"

    def _broken(self, char: str) -> None:
        """The rest of a reported call whose arguments are not JSON: theirs, up to the closing marker."""
        self._held += char
        if self._close and self._held.endswith(self._close):
            if rest := self._held[: -len(self._close)]:
                self._parts.append(Arguments(self._num_calls - 1, rest))
            self._state, self._held = "text", ""
            return
        keep = held_back(self._held, (self._close,)) if self._close else 0
        if shown := self._held[: len(self._held) - keep]:
            self._parts.append(Arguments(self._num_calls - 1, shown))
        self._held = self._held[len(self._held) - keep :]

    def _between(self, char: str) -> None:
        """After a call: its closing marker, the separator of the next one, or other text."""
        held = self._held + char
        seen = held.lstrip()
        separator = {Format.HERMES: "", Format.LLAMA: ";", Format.MISTRAL: ","}[self._format]
        if separator and seen == separator:
            self._begin(held)
        elif self._close and seen == self._close:
            self._state, self._held = "closed", ""
        elif not seen or (self._close and self._close.startswith(seen)):
            self._held = held
        else:
            self._leave(held)

    def _leave(self, text: str) -> None:
        self._state, self._held = ("rest" if self._format is Format.LLAMA else "text"), ""
        for char in text:
            self._take(char)
