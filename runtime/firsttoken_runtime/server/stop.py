"""Stop strings over a growing text.

Text is held back only while its end could still become a stop string, so that a request with stops has
the same first-token latency as one without, unless its first characters look like a stop.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Match:
    """What may be shown after one more piece of text; `stop` is the string that ended it, else None."""

    text: str
    stop: str | None = None


class StopMatcher:
    """Cuts one text at the first occurrence of any of `stops`."""

    def __init__(self, stops: tuple[str, ...], include_stop: bool = False) -> None:
        assert all(stops), "an empty stop string would match everywhere"
        self._stops = stops
        self._include_stop = include_stop
        self._held = ""

    def feed(self, text: str) -> Match:
        """Take the next piece. After a match the matcher is not to be fed again."""
        pending = self._held + text
        found = self._first(pending)
        if found is not None:
            start, stop = found
            self._held = ""
            return Match(pending[: start + len(stop) if self._include_stop else start], stop)
        keep = self._held_back(pending)
        self._held = pending[len(pending) - keep :]
        return Match(pending[: len(pending) - keep])

    def flush(self) -> str:
        """The text still held, at the end of the generation."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        """The match that ends first, as a token-by-token reader would have met it; then the leftmost."""
        matches = [
            (start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        if not matches:
            return None
        _, start, stop = min(matches)
        return start, stop

    def _held_back(self, text: str) -> int:
        """Length of the longest end of `text` that is a proper prefix of a stop string."""
        longest = min(len(text), max((len(stop) for stop in self._stops), default=1) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(len(stop) > length and stop.startswith(end) for stop in self._stops):
                return length
        return 0
