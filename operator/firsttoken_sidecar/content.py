"""Finds the first content in an answer's bytes, chunk by chunk, without keeping the stream.

This is where TTFT ends: at the first content, reasoning or tool-call byte, or at the final chunk when
there is none. A role chunk and keep-alive comments never count. A detector holds at most one
incomplete SSE event (bounded) or one JSON key; how the bytes are split into chunks never changes at
which byte it decides. After its first verdict a detector must not be fed again. Pure.
"""

import json
import re
from enum import StrEnum
from typing import Protocol

MAX_EVENT_BYTES = 64 * 1024
"""A longer event counts as content: no role chunk or comment is that long."""

# Members of a choice's `delta` or `message` that are something to read or to act on.
CONTENT_KEYS = frozenset(
    {b"content", b"reasoning_content", b"reasoning", b"refusal", b"tool_calls", b"function_call", b"audio"}
)
_CONTENT_NAMES = tuple(sorted(key.decode() for key in CONTENT_KEYS))
_MESSAGES = (b"message", b"delta")


class Verdict(StrEnum):
    """What ended the wait for a first token."""

    CONTENT = "content"
    FINAL = "final"
    """The answer ended, or a choice finished, without content."""
    ERROR = "error"
    """The stream carried an error before any content: there is no first token."""


class Detector(Protocol):
    """Watches one answer."""

    decided_at: int | None
    """Number of bytes up to and including the one that decided; None before."""

    def feed(self, chunk: bytes) -> Verdict | None:
        """The verdict when this chunk decides, else None."""
        ...

    def finish(self) -> Verdict:
        """The verdict when the answer ended undecided."""
        ...


def detector_for(content_type: str, content_encoding: str) -> Detector:
    """The detector for an answer with these headers (each may be empty)."""
    media_type = content_type.partition(";")[0].strip().lower()
    if content_encoding.lower() not in ("", "identity"):
        return AtTheEnd()
    if media_type == "text/event-stream":
        return ServerSentEvents()
    if media_type == "application/json":
        return JsonDocument()
    return AtTheEnd()


class AtTheEnd:
    """For bytes we cannot read (compressed, or another type): late rather than early."""

    decided_at: int | None = None

    def feed(self, chunk: bytes) -> Verdict | None:
        return None

    def finish(self) -> Verdict:
        return Verdict.FINAL


class ServerSentEvents:
    """A stream of `data: {chunk}` events; decides at the line end that completes an event."""

    _LINE_END = re.compile(rb"\r\n?|\n")

    def __init__(self) -> None:
        self.decided_at: int | None = None
        self._consumed_bytes = 0
        self._line = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._skip_line_feed = False
        self._first_line = True

    def feed(self, chunk: bytes) -> Verdict | None:
        if not chunk:
            return None
        # The carriage return that ended the last chunk already ended the line.
        start = int(self._skip_line_feed and chunk[:1] == b"\n")
        for end in self._LINE_END.finditer(chunk, start):
            if verdict := self._overflow(start, end.start()):
                return verdict
            line = self._line + chunk[start : end.start()]
            self._line = b""
            start = end.end()
            if verdict := self._end_line(line):
                self.decided_at = self._consumed_bytes + end.start() + 1
                return verdict
        if verdict := self._overflow(start, len(chunk)):
            return verdict
        self._line += chunk[start:]
        self._skip_line_feed = chunk.endswith(b"\r")
        self._consumed_bytes += len(chunk)
        return None

    def finish(self) -> Verdict:
        return Verdict.FINAL

    def _overflow(self, start: int, end: int) -> Verdict | None:
        room = MAX_EVENT_BYTES - self._data_bytes - len(self._line)
        if end - start <= room:
            return None
        self.decided_at = self._consumed_bytes + start + room + 1
        return Verdict.CONTENT

    def _end_line(self, line: bytes) -> Verdict | None:
        if self._first_line:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._first_line = False
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._data_bytes += len(value)
            return None
        data = b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        return _event_verdict(data) if data else None


def _event_verdict(data: bytes) -> Verdict | None:
    if data.strip() == b"[DONE]":
        return Verdict.FINAL
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    if event.get("error"):
        return Verdict.ERROR
    choices = event.get("choices")
    if not isinstance(choices, list):
        return None
    verdict = None
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        if choice.get("text") or (isinstance(delta, dict) and any(delta.get(n) for n in _CONTENT_NAMES)):
            return Verdict.CONTENT
        if choice.get("finish_reason"):
            verdict = Verdict.FINAL
    return verdict


class JsonDocument:
    """One JSON object that may arrive in pieces; decides at the first byte of the first content string.

    Reads structure only: a path of keys, never a value. Keys written with escapes are not recognized,
    no serializer writes ours that way.
    """

    _STRUCTURE = re.compile(rb'["{}\[\],:]')
    _STRING_END = re.compile(rb'["\\]')
    _LONGEST_KEY_BYTES = 64

    def __init__(self) -> None:
        self.decided_at: int | None = None
        self._consumed_bytes = 0
        self._path: list[bytes] = []  # an object's entry is its current key, an array's is b"[]"
        self._in_string = False
        self._is_key = False
        self._escaped = False
        self._string_bytes = 0
        self._key = b""

    def feed(self, chunk: bytes) -> Verdict | None:
        at = 0
        while at < len(chunk):
            at = self._read_string(chunk, at) if self._in_string else self._read_structure(chunk, at)
            if self.decided_at is not None:
                return Verdict.CONTENT
        self._consumed_bytes += len(chunk)
        return None

    def finish(self) -> Verdict:
        return Verdict.FINAL

    def _read_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._string_bytes += 1
            return at + 1
        if not self._is_key and self._string_bytes == 0 and chunk[at : at + 1] != b'"' and self._is_content():
            self.decided_at = self._consumed_bytes + at + 1
            return at + 1
        end = self._STRING_END.search(chunk, at)
        stop = end.start() if end else len(chunk)
        self._string_bytes += stop - at
        if self._is_key:
            room = self._LONGEST_KEY_BYTES - len(self._key)
            self._key += chunk[at : min(stop, at + room)]
        if end is None:
            return stop
        if end.group() == b"\\":
            self._escaped = True
            self._string_bytes += 1
        else:
            self._in_string = False
            if self._is_key and self._path:
                self._path[-1] = self._key
        return end.end()

    def _read_structure(self, chunk: bytes, at: int) -> int:
        found = self._STRUCTURE.search(chunk, at)
        if found is None:
            return len(chunk)
        match found.group():
            case b'"':
                self._in_string = True
                self._string_bytes = 0
                self._key = b""
            case b"{":
                self._path.append(b"")
                self._is_key = True
            case b"[":
                self._path.append(b"[]")
                self._is_key = False
            case b"}" | b"]":
                del self._path[-1:]
                self._is_key = False
            case b",":
                self._is_key = bool(self._path) and self._path[-1] != b"[]"
            case _:
                self._is_key = False
        return found.end()

    def _is_content(self) -> bool:
        path = self._path
        if path[:2] != [b"choices", b"[]"] or len(path) < 3:
            return False
        if path[2] == b"text":
            return True
        return path[2] in _MESSAGES and len(path) > 3 and path[3] in CONTENT_KEYS


class EventEnd:
    """Knows whether the bytes so far end with a complete SSE event."""

    def __init__(self) -> None:
        self._tail = b"\n\n"

    def watch(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk[-4:])[-4:]

    @property
    def is_reached(self) -> bool:
        return self._tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
