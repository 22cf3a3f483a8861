"""One call of a tool as models write it, `{"name": "f", "arguments": {…}}`, read a character at a time.

Reading by characters makes the result independent of how the text was cut into tokens. The arguments are
passed on as they are written, so that they can be streamed; only their strings and brackets are followed.
"""

import json

NAME_KEYS = ("name",)
ARGUMENT_KEYS = ("arguments", "parameters")
_SPACE = " \t\r\n"
_CLOSING = {"{": "}", "[": "]"}
_LONGEST_NAME = 256


class MalformedError(ValueError):
    """This is not a call."""


class ValueReader:
    """One JSON value: finds its end."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self._chars: list[str] = []
        self._open: list[str] = []
        self._in_string = False
        self._is_escaped = False

    @property
    def text(self) -> str:
        return "".join(self._chars)

    def feed(self, char: str) -> bool:
        """Whether `char` belongs to the value (a number ends before the next character).

        Raises MalformedError.
        """
        if self._in_string:
            self._string(char)
        elif char == '"':
            self._check_start()
            self._in_string = True
        elif char in _CLOSING:
            self._check_start()
            self._open.append(_CLOSING[char])
        elif self._open:
            if char in "]}":
                if self._open.pop() != char:
                    raise MalformedError
                self.is_done = not self._open
        elif char in _SPACE + ",}]:":
            if not self.has_begun:
                raise MalformedError
            self.is_done = True
            return False
        self.has_begun = True
        self._chars.append(char)
        return True

    def _check_start(self) -> None:
        if self.has_begun and not self._open:
            raise MalformedError

    def _string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._in_string = False
            self.is_done = not self._open


class CallReader:
    """`name` is None until the call is certain: its name is known and its arguments have begun."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.is_done = False
        self._raw: list[str] = []
        self._state = "open"
        self._key = ""
        self._name: str | None = None
        self._value = ValueReader()
        self._pending = ""
        self._has_arguments = False
        self._is_text = False

    @property
    def raw(self) -> str:
        """What was read, for when it turns out to be text."""
        return "".join(self._raw)

    def feed(self, char: str) -> str:
        """The next piece of the arguments, often empty. A `char` that raises MalformedError is not read."""
        assert not self.is_done
        piece = self._feed(char)
        self._raw.append(char)
        return piece

    def _feed(self, char: str) -> str:
        if self._state == "value":
            if self._value.has_begun or char not in _SPACE:
                return self._in_value(char)
            return ""
        if self._state == "key":
            if self._value.feed(char) and self._value.is_done:
                self._key, self._state = _string(self._value.text), "colon"
            return ""
        if char in _SPACE:
            return ""
        self._between(char)
        return ""

    def _between(self, char: str) -> None:
        if self._state == "open" and char == "{":
            self._state = "first key"
        elif self._state in ("first key", "next key") and char == '"':
            self._state, self._value = "key", ValueReader()
            self._value.feed(char)
        elif self._state == "colon" and char == ":":
            self._state, self._value = "value", ValueReader()
        elif self._state == "after" and char == ",":
            self._state = "next key"
        elif self._state == "after" and char == "}" and self.name is not None:
            self.is_done = True
        else:
            raise MalformedError

    def _in_value(self, char: str) -> str:
        if not self._value.has_begun:
            self._check_kind(char)
        belongs = self._value.feed(char)
        piece = ""
        if self._key in ARGUMENT_KEYS and belongs:
            piece = self._argument(char)
        if self._value.is_done:
            piece += self._end_value()
            self._state = "after"
            if not belongs and char not in _SPACE:
                self._between(char)
        return piece

    def _check_kind(self, char: str) -> None:
        if self._key in NAME_KEYS and (char != '"' or self._name is not None):
            raise MalformedError
        if self._key in ARGUMENT_KEYS:
            if char not in '{"' or self._has_arguments:
                raise MalformedError
            self._has_arguments = True
            self._is_text = char == '"'

    def _argument(self, char: str) -> str:
        """Arguments inside a string are unpacked when it ends; an object is passed on as it comes."""
        if self._is_text:
            return ""
        self._pending += char
        return self._release()

    def _end_value(self) -> str:
        if self._key in NAME_KEYS:
            self._name = _string(self._value.text)
            if not 0 < len(self._name) <= _LONGEST_NAME:
                raise MalformedError
        elif self._key in ARGUMENT_KEYS and self._is_text:
            self._pending += _string(self._value.text)
        return self._release()

    def _release(self) -> str:
        if self._name is None or not self._has_arguments:
            return ""
        self.name = self._name
        piece, self._pending = self._pending, ""
        return piece


def _string(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise MalformedError from error
    if not isinstance(value, str):
        raise MalformedError
    return value
