"""Takes the engine's stamps out of a stream: comments that are meant for sidecars, not for clients. Pure.

A stamp is a whole SSE event of one comment line, `: firsttoken-first {…}` or `: firsttoken-end {…}`, at the
start of a line, ended by a blank line. All other bytes pass as they came, however the stream is split. What
may be the start of a stamp is held back until it is known: no other line starts like one, so that is rare.
"""

import re

FIRST = b"first"
END = b"end"
LONGEST_BYTES = 4096
"""A longer one is none of ours."""
_MARK = b": firsttoken-"
_STAMP = re.compile(rb": firsttoken-(first|end) (\{[^\r\n]*\})\n\n")
_UNFINISHED = re.compile(rb": firsttoken-(?:[^\r\n]*|(?:first|end) \{[^\r\n]*\}\n)")


class StampFilter:
    """Of one stream."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, bytes]] = []
        """(`FIRST` or `END`, the JSON after it) in order; whoever reads empties it."""
        self._held = b""
        self._is_at_line_start = True

    def feed(self, chunk: bytes) -> bytes:
        """What may go on after this chunk; maybe nothing."""
        if not self._held and _MARK not in chunk and (chunk.endswith(b"\n") or not self._starts_mark(chunk)):
            if chunk:
                self._is_at_line_start = chunk.endswith(b"\n")
            return chunk
        data = self._held + chunk
        passed, end = self._without_stamps(data)
        self._held = data[end:]
        self._is_at_line_start = bool(self._held) or data.endswith(b"\n")
        return passed

    def finish(self) -> bytes:
        """What is held when the stream ends; of a stamp that was cut off, nothing."""
        held, self._held = self._held, b""
        return b"" if held.startswith(_MARK) else held

    def _without_stamps(self, data: bytes) -> tuple[bytes, int]:
        """What passes, and up to where `data` is done with."""
        passed = []
        start = at = 0
        while (found := data.find(_MARK, at)) >= 0:
            at = found + 1
            if not self._is_line_start(data, found):
                continue
            if stamp := _STAMP.match(data, found):
                self.taken.append((stamp[1], stamp[2]))
                passed.append(data[start:found])
                start = at = stamp.end()
            elif len(data) - found <= LONGEST_BYTES and _UNFINISHED.fullmatch(data, found):
                return b"".join([*passed, data[start:found]]), found
        end = len(data)
        if self._starts_mark(data):
            end = data.rfind(b"\n") + 1
        return b"".join([*passed, data[start:end]]), end

    def _starts_mark(self, data: bytes) -> bool:
        """Whether the last line, which has no end yet, may become one with a mark."""
        line = data.rfind(b"\n") + 1
        return line < len(data) and self._is_line_start(data, line) and _MARK.startswith(data[line:])

    def _is_line_start(self, data: bytes, at: int) -> bool:
        return data[at - 1 : at] == b"\n" if at else self._is_at_line_start
